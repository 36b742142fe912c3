"""Only `services.connections` opens connections: whoever needs a capability is given it.

Every capability is opened by a class method `open`. The import rules keep everybody else away from the implementations
of brokers and streams; this test finds the calls that they cannot see.
"""

import ast
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT

CONNECTIONS = Path("services/connections.py")
CAPABILITIES = {"store", "broker", "stream", "audience", "blobs", "outgoing", "mail"}


def opened(source: str) -> list[str]:
    """The classes, by name, whose `open` is called."""
    return [
        call.func.value.id
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "open"
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id[0].isupper()
    ]


def others() -> list[Path]:
    """Every module but connections and the capabilities themselves."""
    files = [path.relative_to(ROOT) for folder in ("services", "shared") for path in (ROOT / folder).rglob("*.py")]
    return [
        path
        for path in files
        if path != CONNECTIONS and path.parts[:2] not in {("shared", name) for name in CAPABILITIES}
    ]


def test_nobody_but_connections_opens_a_capability() -> None:
    assert {str(path): found for path in others() if (found := opened((ROOT / path).read_text("utf-8")))} == {}


def test_connections_opens_them() -> None:
    assert {"Store"} <= set(opened((ROOT / CONNECTIONS).read_text("utf-8")))


@pytest.mark.parametrize(
    ("source", "found"), [("await Store.open(url)", ["Store"]), ("path.open()", []), ("open(path)", [])]
)
def test_calls_are_recognised(source: str, found: list[str]) -> None:
    assert opened(source) == found
