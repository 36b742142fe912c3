"""Whether an object is one that its API takes: Kubernetes' own kinds, and those whose schemas are kept in `schemas`."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
from jsonschema import Draft202012Validator

from tests.deploy.manifests import Object, documents

VERSIONS = ("1.29", kubernetes_validate.latest_version())
SCHEMAS = Path(__file__).parent / "schemas"

# It would read its megabytes of schemas anew for each object.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)


def check(manifest: Object) -> None:
    """Raises a validation error, which names the field."""
    _check(json.dumps(manifest, sort_keys=True))


@cache
def _check(text: str) -> None:
    manifest: Object = json.loads(text)
    schema = _kept_schemas().get((manifest["apiVersion"], manifest["kind"]))
    if schema is not None:
        Draft202012Validator(schema).validate(manifest)
        return
    for version in VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)


@cache
def triggers() -> dict[str, dict[str, list[str]]]:
    """The parameters of KEDA's triggers: in `metadata`, in `authentication`, and those that are `required`."""
    (known,) = documents(SCHEMAS / "keda-triggers.yaml")
    return known


@cache
def _kept_schemas() -> dict[tuple[str, str], Object]:
    kept: dict[tuple[str, str], Object] = {}
    for path in SCHEMAS.glob("*_*.yaml"):
        (definition,) = documents(path)
        spec = definition["spec"]
        for version in spec["versions"]:
            schema = _sealed(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
            kept[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return kept


def _sealed(schema: Any) -> Any:
    """The schema that takes no field that it does not name: the API would drop it without a word."""
    if not isinstance(schema, dict):
        return schema
    sealed = {key: _sealed(value) for key, value in schema.items() if key not in {"properties", "anyOf"}}
    if "anyOf" in schema:
        sealed["anyOf"] = schema["anyOf"]
    if "properties" in schema:
        sealed["properties"] = {name: _sealed(value) for name, value in schema["properties"].items()}
        sealed.setdefault("additionalProperties", False)
    return sealed
