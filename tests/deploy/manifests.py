"""The files that deploy Carillon, read and told apart."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from shared.drivers.secrets import fresh_key
from shared.runtime.configuration import EXAMPLE, PREFIX

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
BASE = K8S / "base"
EXAMPLES = frozenset({"secret.example.yaml"})
SETTINGS = BASE / "settings.env"
KEYS = ("PROVIDERS_SECRET_KEYS", "CALLBACKS_SIGNING_SECRET")
SERVICES = ("api", "scheduler", "worker", "feedback-answers", "feedback-bus")

Object = dict[str, Any]


class _Strict(yaml.CSafeLoader):
    """A loader for which a key given twice is an error, not a silent loss."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if not key.tag.endswith(":merge")]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise yaml.constructor.ConstructorError(None, None, f"given twice: {sorted(twice)}", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def documents(path: Path) -> list[Object]:
    """Every document of a YAML file."""
    return [document for document in yaml.load_all(path.read_text("utf-8"), _Strict) if document is not None]


def compose() -> Object:
    """The compose file."""
    (document,) = documents(ROOT / "docker-compose.yml")
    return document


def manifests(*kinds: str) -> list[Object]:
    """The Kubernetes objects of these kinds, or all, as the base and the examples have them."""
    files = [path for path in sorted(BASE.glob("*.yaml")) if path.name != "kustomization.yaml"]
    found = [document for path in [*files, *(K8S / name for name in EXAMPLES)] for document in documents(path)]
    return [document for document in found if not kinds or document["kind"] in kinds]


def kustomization(folder: Path = BASE) -> Object:
    """What makes the base of the manifests, or another folder's part of them."""
    (document,) = documents(folder / "kustomization.yaml")
    return document


def variables(path: Path) -> dict[str, str]:
    """What a file of variables for a ConfigMap or a Secret sets."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line.strip() and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def filled_in(file: Path) -> dict[str, str]:
    """An example of a Secret, with a value of one's own wherever it asks for one."""
    (example,) = documents(file)
    keys = {f"CARILLON_{name}": key for name, key in zip(KEYS, (fresh_key(), f"whsec_{fresh_key()}"), strict=True)}
    return {name: keys.get(name, text.replace(EXAMPLE, "our-own")) for name, text in example["stringData"].items()}


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile: keyword and the rest, continued lines joined."""
    lines = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ").splitlines()
    kept = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in kept]


def instructions(keyword: str) -> list[str]:
    """What the Dockerfile says after this keyword, each time."""
    return [rest for word, rest in dockerfile() if word == keyword]


def image_settings() -> dict[str, str]:
    """The settings that the image brings along."""
    pairs = [pair.partition("=") for rest in instructions("ENV") for pair in rest.split()]
    return {name: value for name, _, value in pairs if name.startswith(PREFIX)}


def interpolated(value: object) -> str:
    """A value of the compose file where the shell sets nothing: `${NAME:-default}` is its default."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))


def project(folder: str = ".") -> Object:
    """The project's table in a pyproject.toml."""
    table: Object = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def pod(workload: Object) -> Object:
    """The pod's specification in a Deployment or a Job."""
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def name(manifest: Object) -> str:
    """How a failed test calls a manifest."""
    return f"{manifest['kind']}/{manifest['metadata']['name']}"
