"""The suite knows when it does not know a route: it says what to add."""

import json
from typing import Any

import pytest

from tests.security.operations import Operation, Role, Unknown, operations

REFERENCE = {"$ref": "#/components/schemas/KiteBody"}


def described(**fields: Any) -> dict[str, Any]:
    """A document with one operation."""
    body = {"content": {"application/json": {"schema": REFERENCE}}}
    standard = {
        "security": [{"token": ["app/operator"]}],
        "parameters": [],
        "responses": {"201": {}},
        "requestBody": body,
    }
    return {"paths": {"/kites/{kiteId}": {"post": standard | fields}}}


def only(document: dict[str, Any]) -> Operation:
    [operation] = operations(json.loads(json.dumps(document)))
    return operation


def test_who_may_is_read_from_the_security() -> None:
    assert (only(described()).role, only(described()).least) == (Role.OF_APP, "operator")
    viewed = only(described(security=[{"token": ["namespace/viewer"]}, {"person": ["namespace/viewer"]}]))
    assert (viewed.role, viewed.least) == (Role.OF_NAMESPACE, "viewer")
    assert only(described(security=[{"token": []}, {"person": []}])).role is Role.KNOWN
    assert only(described(security=[])).role is Role.EVERYBODY


def test_an_unknown_path_parameter_says_what_to_add() -> None:
    with pytest.raises(Unknown, match=r"POST /kites/\{kiteId\}: .*\{kiteId\}.*tests/security/tenants.py"):
        only(described()).filled({"appId": "a"})


def test_an_unknown_query_parameter_says_what_to_add() -> None:
    wind = {"name": "wind", "in": "query", "required": True}
    with pytest.raises(Unknown, match=r"'wind'.*QUERY in tests/security/bodies.py"):
        only(described(parameters=[wind])).filled({"kiteId": "k"})


def test_an_unknown_body_says_what_to_add() -> None:
    with pytest.raises(Unknown, match=r"'KiteBody'.*VALID in tests/security/bodies.py"):
        only(described()).valid({})
