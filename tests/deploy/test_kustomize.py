"""The base and the overlays with each combination of components, as kustomize renders them."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from jsonschema import ValidationError

from shared.runtime.configuration import EXAMPLE, Misconfigured, load
from tests.deploy import validity
from tests.deploy.manifests import (
    K8S,
    KEYS,
    Object,
    compose,
    documents,
    filled_in,
    image_settings,
    interpolated,
    kustomization,
    pod,
    variables,
)
from tests.deploy.rendering import BY_CPU, COMPONENTS, Combination, Renderings, all_combinations, render

COMBINATIONS = all_combinations()
EVERYTHING = Combination("production", COMPONENTS)
LAPTOP = K8S / "overlays" / "laptop"
PRODUCTION = K8S / "overlays" / "production"
SECRET = "secret.example.yaml"
INGRESS = "ingress.example.yaml"


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [each for each in objects if each["kind"] in kinds]


def carillons(objects: list[Object]) -> list[Object]:
    """The workloads that run Carillon."""
    return [each for each in of_kind(objects, "Deployment", "Job") if each["metadata"]["namespace"] == "carillon"]


def folders() -> list[Path]:
    return sorted(path.parent for path in K8S.rglob("kustomization.yaml") if path.parent != K8S)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_each_combination_is_valid(renderings: Renderings, combination: Combination) -> None:
    for manifest in renderings[combination]:
        validity.check(manifest)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_all_of_it_is_in_the_namespaces_that_it_makes(renderings: Renderings, combination: Combination) -> None:
    made = {each["metadata"]["name"] for each in of_kind(renderings[combination], "Namespace")}
    used = {each["metadata"]["namespace"] for each in renderings[combination] if each["kind"] != "Namespace"}
    assert made == used == ({"carillon", "carillon-servers"} if combination.place == "laptop" else {"carillon"})


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_no_two_objects_share_a_name(renderings: Renderings, combination: Combination) -> None:
    names = Counter(
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in renderings[combination]
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: str(folder.relative_to(K8S)))
def test_every_file_is_used(folder: Path) -> None:
    given = kustomization(folder)
    generators = [*given.get("configMapGenerator", []), *given.get("secretGenerator", [])]
    used = {
        *given.get("resources", []),
        *(file for generator in generators for file in generator["envs"]),
        *(patch["path"] for patch in given.get("patches", []) if "path" in patch),
    }
    there = {path.name for path in folder.iterdir()} - {"kustomization.yaml", SECRET, INGRESS}
    assert there == {name for name in used if not name.startswith("../")}


def test_each_folder_is_a_kind_of_kustomization_that_kubectl_takes() -> None:
    kinds = {folder: (kustomization(folder)["apiVersion"], kustomization(folder)["kind"]) for folder in folders()}
    components = {K8S / "components" / component for component in (*COMPONENTS, BY_CPU)}
    assert components <= kinds.keys()
    for folder, kind in kinds.items():
        assert kind == (
            ("kustomize.config.k8s.io/v1alpha1", "Component")
            if folder in components
            else ("kustomize.config.k8s.io/v1beta1", "Kustomization")
        )


def test_production_has_every_component_and_a_laptop_none() -> None:
    production = kustomization(PRODUCTION)
    assert production["components"] == [f"../../components/{component}" for component in COMPONENTS]
    assert "components" not in kustomization(LAPTOP)


def passwords(combination: Combination) -> dict[str, str]:
    """What the Secret holds there: the examples with an operator's own values in them."""
    if "tls" in combination.components:
        own = {"CARILLON_API_PUBLIC_URL": "https://carillon.acme.example"}
        if combination.place == "laptop":
            own["CARILLON_BLOBS_ENDPOINT_URL"] = "https://s3.carillon-servers:8333"
        return filled_in(PRODUCTION / SECRET) | own
    if combination.place == "laptop":
        return variables(LAPTOP / "secret.env")
    return filled_in(K8S / SECRET)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_the_processes_take_these_settings(renderings: Renderings, combination: Combination) -> None:
    (settings,) = of_kind(renderings[combination], "ConfigMap")
    load(image_settings() | settings["data"] | passwords(combination))


@pytest.mark.parametrize("file", [K8S / SECRET, PRODUCTION / SECRET], ids=lambda file: file.parent.name)
def test_an_example_that_nobody_has_filled_in_is_refused(file: Path) -> None:
    (example,) = documents(file)
    with pytest.raises(Misconfigured) as refused:
        load(example["stringData"])
    asking = [name for name, text in sorted(example["stringData"].items()) if EXAMPLE in text]
    assert {f"CARILLON_{name}" for name in KEYS} <= {*asking}
    lines = str(refused.value).splitlines()
    assert all("must not contain CHANGE-ME: replace it with your own value" in line for line in lines)
    assert sorted(line.split("(")[1].split()[0] for line in lines) == asking


def test_production_refuses_what_only_examples_have(renderings: Renderings) -> None:
    (settings,) = of_kind(renderings[EVERYTHING], "ConfigMap")
    of_compose = {name: interpolated(value) for name, value in compose()["services"]["api"]["environment"].items()}
    for of_laptop in (variables(LAPTOP / "secret.env"), of_compose):
        keys = {f"CARILLON_{name}": of_laptop[f"CARILLON_{name}"] for name in KEYS}
        with pytest.raises(Misconfigured) as refused:
            load(image_settings() | settings["data"] | filled_in(PRODUCTION / SECRET) | keys)
        names = ["providers.secret_keys", "callbacks.signing_secret", "api.public_url"]
        assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == names


def test_with_tls_no_process_takes_an_address_without(renderings: Renderings) -> None:
    (settings,) = of_kind(renderings[EVERYTHING], "ConfigMap")
    plain = passwords(Combination("production", ()))
    with pytest.raises(Misconfigured) as refused:
        load(image_settings() | settings["data"] | plain)
    refusals = str(refused.value).splitlines()
    sections = ["store.url", "broker.url", "broker.management_url", "stream.url", "audience.url"]
    assert [line.partition(":")[0] for line in refusals if line.partition(":")[0] in sections] == sections


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_every_process_has_the_settings_that_were_rendered_with_it(
    renderings: Renderings, combination: Combination
) -> None:
    (settings,) = of_kind(renderings[combination], "ConfigMap")
    assert settings["metadata"]["name"].startswith("carillon-")
    wanted = [{"configMapRef": {"name": settings["metadata"]["name"]}}, {"secretRef": {"name": "carillon"}}]
    for workload in carillons(renderings[combination]):
        assert pod(workload)["containers"][0]["envFrom"] == wanted, "the Secret is the stronger one of the two"


def test_another_setting_is_another_config_map(kustomize: Path, tmp_path: Path, renderings: Renderings) -> None:
    tree = shutil.copytree(K8S, tmp_path / "k8s")
    file = tree / "base" / "settings.env"
    file.write_text(file.read_text("utf-8").replace("us-east-1", "eu-central-1"), "utf-8")
    (after,) = of_kind(render([str(kustomize), "build"], tree / "base"), "ConfigMap")
    (before,) = of_kind(renderings[Combination("base", ())], "ConfigMap")
    assert before["metadata"]["name"] != after["metadata"]["name"]
    assert {*before["data"].items()} ^ {*after["data"].items()} == {
        ("CARILLON_BLOBS_REGION", "us-east-1"),
        ("CARILLON_BLOBS_REGION", "eu-central-1"),
    }


def test_the_folder_itself_renders_as_the_base(kustomize: Path, renderings: Renderings) -> None:
    assert render([str(kustomize), "build"], K8S) == renderings[Combination("base", ())]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl to compare with")
def test_kubectl_renders_the_same(renderings: Renderings) -> None:
    kubectl = ["kubectl", "kustomize"]
    assert render(kubectl, PRODUCTION) == renderings[EVERYTHING]
    assert render(kubectl, LAPTOP) == renderings[Combination("laptop", ())]


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_whoever_knows_prometheus_operator_is_scraped_by_it_alone(
    renderings: Renderings, combination: Combination
) -> None:
    monitors = of_kind(renderings[combination], "PodMonitor")
    assert len(monitors) == ("monitoring" in combination.components)
    for deployment in of_kind(renderings[combination], "Deployment"):
        annotations = deployment["spec"]["template"]["metadata"].get("annotations", {})
        assert bool(annotations) == (not monitors)
    for monitor in monitors:
        endpoints = [(endpoint["port"], endpoint["path"]) for endpoint in monitor["spec"]["podMetricsEndpoints"]]
        assert endpoints == [("health", "/metrics")]
        assert monitor["spec"]["selector"]["matchLabels"] == {"app.kubernetes.io/name": "carillon"}


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_with_tls_every_process_can_read_its_files(renderings: Renderings, combination: Combination) -> None:
    tls = "tls" in combination.components
    (settings,) = of_kind(renderings[combination], "ConfigMap")
    values = settings["data"].values()
    files = {Path(value) for value in values if value.startswith("/etc/")}
    assert {file.name for file in files} == ({"ca.crt", "tls.crt", "tls.key"} if tls else set())
    for workload in carillons(renderings[combination]):
        mounts = {mount["mountPath"]: mount["name"] for mount in pod(workload)["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod(workload)["volumes"]}
        assert ("tls" in volumes) == tls
        for file in files:
            secret = volumes[mounts[str(file.parent)]]["secret"]
            assert secret == {"secretName": "carillon-tls", "defaultMode": 0o440}
            assert pod(workload)["securityContext"]["fsGroup"] == pod(workload)["securityContext"]["runAsGroup"]


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_the_service_says_by_its_port_what_the_api_speaks(renderings: Renderings, combination: Combination) -> None:
    (service,) = [each for each in of_kind(renderings[combination], "Service") if each["metadata"]["name"] == "api"]
    wanted = ("https", 443) if "tls" in combination.components else ("http", 80)
    assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [wanted]
    assert {port["targetPort"] for port in service["spec"]["ports"]} == {"http"}


def test_a_laptop_has_the_servers_of_the_compose_file(renderings: Renderings) -> None:
    servers = of_kind(renderings[Combination("laptop", ())], "StatefulSet")
    images = {server["metadata"]["name"]: pod(server)["containers"][0]["image"] for server in servers}
    services = compose()["services"]
    assert images == {name: service["image"] for name, service in services.items() if "build" not in service}
    # Kafka takes every variable KAFKA_… for a setting of its own.
    assert all(pod(server)["enableServiceLinks"] is False for server in servers)


def test_an_unknown_field_of_a_kept_kind_is_noticed(renderings: Renderings) -> None:
    (monitor,) = of_kind(renderings[EVERYTHING], "PodMonitor")
    with pytest.raises(ValidationError, match="'ports'"):
        validity.check({**monitor, "spec": {**monitor["spec"], "ports": []}})


@pytest.mark.parametrize("folder", [K8S, PRODUCTION], ids=lambda folder: folder.name)
def test_the_examples_are_valid(folder: Path) -> None:
    (secret,) = documents(folder / SECRET)
    validity.check(secret)
    assert (secret["metadata"]["namespace"], secret["metadata"]["name"]) == ("carillon", "carillon")


def test_the_ingress_without_a_sign_in_leads_to_the_api_and_vouches_for_nobody(renderings: Renderings) -> None:
    (ingress,) = documents(PRODUCTION / INGRESS)
    validity.check(ingress)
    objects = renderings[EVERYTHING]
    (service,) = [each for each in of_kind(objects, "Service") if each["metadata"]["name"] == "api"]
    [rule] = ingress["spec"]["rules"]
    [path] = rule["http"]["paths"]
    named = {"name": "api", "port": {"name": service["spec"]["ports"][0]["name"]}}
    assert (path["path"], path["backend"]["service"]) == ("/", named)
    (settings,) = of_kind(objects, "ConfigMap")
    assert settings["data"]["CARILLON_API_PUBLIC_URL"] == f"https://{rule['host']}"
    assert ingress["spec"]["tls"][0]["hosts"] == [rule["host"]]
    assert settings["data"]["CARILLON_API_TRUSTED_PROXIES"] == "127.0.0.1/32"
    (own,) = [each for each in of_kind(objects, "NetworkPolicy") if each["metadata"]["name"] == "api"]
    peer = own["spec"]["ingress"][0]["from"][0]
    assert peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == "ingress-nginx"
