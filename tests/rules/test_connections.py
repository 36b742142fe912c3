"""Only `services.wiring.servers` calls the class method `open` of a server: other modules are given it open."""

import ast

import pytest

from tests.rules.code import SERVER, nodes

SERVERS = "services/wiring/servers.py"
DRIVERS = "shared/drivers/"


def opened(node: ast.AST) -> str:
    """The class, by name, whose `open` is called; empty if there is none."""
    match node:
        case ast.Call(func=ast.Attribute(attr="open", value=ast.Name(id=name))) if name[0].isupper():
            return name
    return ""


def test_only_the_wiring_opens_a_server() -> None:
    found = [(path, name) for path, node in nodes(*SERVER) if (name := opened(node))]
    assert (SERVERS, "Store") in found
    assert [each for each in found if each[0] != SERVERS and not each[0].startswith(DRIVERS)] == []


@pytest.mark.parametrize(
    ("source", "found"), [("await Store.open(url)", "Store"), ("path.open()", ""), ("open(path)", "")]
)
def test_calls_are_recognised(source: str, found: str) -> None:
    assert "".join(opened(node) for node in ast.walk(ast.parse(source))) == found
