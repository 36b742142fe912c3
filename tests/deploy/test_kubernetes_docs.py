"""What docs/kubernetes.md has its readers type names things that there are."""

import re
import shutil
from pathlib import Path

import yaml

from tests.deploy import validity
from tests.deploy.manifests import BASE, K8S, ROOT, documents, pod, variables
from tests.deploy.rendering import BY_CPU, COMPONENTS, Combination, Renderings, render
from tests.deploy.test_kustomize import LAPTOP, PRODUCTION, SECRET, carillons

PAGE = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
TYPED = "\n".join(re.findall(r"```\n(.*?)```", PAGE, re.DOTALL) + re.findall(r"`([^`\n]+)`", PAGE))
NEED_NO_WORD = {"CARILLON_STREAM_REPLICATION_FACTOR", "CARILLON_STREAM_COMPRESSION", "CARILLON_API_ALLOWED_HOSTS"}
SHOWN = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def test_every_path_is_there() -> None:
    paths = set(re.findall(r"\bk8s/[\w./-]*\w", PAGE))
    assert {"k8s/overlays/laptop", "k8s/base/kustomization.yaml"} <= paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_object_is_there(renderings: Renderings) -> None:
    rendered = {
        f"{each['kind'].lower()}/{each['metadata']['name']}"
        for combination in (Combination("laptop", COMPONENTS), Combination("production", COMPONENTS))
        for each in renderings[combination]
    }
    named = set(re.findall(r"\b(?:deployment|job|service|statefulset)/\w+", TYPED))
    assert {"job/init", "deployment/worker", "service/s3"} <= named
    assert named <= rendered


def test_each_component_has_a_section() -> None:
    assert [line for line in re.findall(r"^### (\S+)$", PAGE, re.MULTILINE) if line in (*COMPONENTS, BY_CPU)] == [
        "network-policies",
        "autoscaling",
        "autoscaling-by-cpu",
        "monitoring",
        "tls",
    ]


def test_the_objects_that_it_shows_are_valid() -> None:
    objects = [shown for shown in SHOWN if "kind" in shown]
    assert [shown["kind"] for shown in objects] == ["TriggerAuthentication"]
    for shown in objects:
        validity.check(shown)
        parameters = {reference["parameter"] for reference in shown["spec"]["secretTargetRef"]}
        assert parameters <= set(validity.triggers()["kafka"]["authentication"])


def test_the_patch_for_secrets_as_files_works(kustomize: Path, tmp_path: Path) -> None:
    (overlay,) = [shown for shown in SHOWN if "patches" in shown]
    folder = shutil.copytree(K8S, tmp_path / "k8s") / "overlays" / "own"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["../../base"], **overlay}), "utf-8")
    objects = render([str(kustomize), "build"], folder)
    assert len(carillons(objects)) == 6
    for workload in carillons(objects):
        validity.check(workload)
        (container,) = pod(workload)["containers"]
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        (volume,) = [volume for volume in pod(workload)["volumes"] if volume["name"] == "secrets"]
        assert mounted["secrets"] == "/etc/carillon/secrets"
        assert volume["secret"]["secretName"] == "carillon"
        assert [list(source) for source in container["envFrom"]] == [["configMapRef"]]


def test_every_key_of_the_examples_and_overlays_is_explained() -> None:
    of_secrets = [documents(folder / SECRET)[0]["stringData"] for folder in (K8S, PRODUCTION)]
    files = [BASE / "settings.env", PRODUCTION / "settings.env", LAPTOP / "settings.env", LAPTOP / "secret.env"]
    known = {name for given in (*of_secrets, *map(variables, files)) for name in given}
    explained = set(re.findall(r"CARILLON_[A-Z_]+", PAGE))
    assert known - explained == NEED_NO_WORD
