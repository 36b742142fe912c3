"""Import rules that the six contracts of `pyproject.toml` cannot say."""

import ast
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.stack.places import CHECKOUT

_RULES = "shared.*.rules*"
_PURE = ("shared.core.*", _RULES)
_OURS = {
    "shared/core/*.py": ("shared.core.*",),
    "shared/*/rules/*.py": _PURE,
    "shared/runtime/*.py": ("shared.core.*", "shared.runtime*"),
    "shared/providers/*.py": (*_PURE, "shared.runtime.*", "shared.providers*", "shared.drivers.http*"),
    "services/wiring/servers.py": ("shared.*",),
    "services/wiring/rooms.py": ("shared.*", "services.wiring.*"),
    "services/commands/**/*.py": ("shared.*", "services.commands.*", "services.embedded*", "services.wiring*"),
}
"""The modules of Carillon that a room may import."""
_IN_THE_CLIENT = {
    "asyncio": ("async_runtime",),  # a synchronous program needs no event loop
    "httpcore": ("async_runtime", "blocking_runtime", "connections"),
    "httpx": ("async_runtime", "blocking_runtime", "connections", "transport"),
}
_IMPLEMENTATIONS = ("blobs.files", "blobs.s3", "kafka.local", "kafka.stream", "rabbitmq.broker", "rabbitmq.memory")
_CHOOSING = ("services/wiring/servers.py", "services/commands/doctor/*.py", "shared/drivers/*")


def imported(*patterns: str) -> list[tuple[str, str]]:
    """The modules below these patterns, each with a name that it imports."""
    paths = sorted({path for pattern in patterns for path in CHECKOUT.glob(pattern)})
    return [(str(path.relative_to(CHECKOUT)), name) for path in paths for name in _names(path)]


def _names(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def _is_one_of(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


@pytest.mark.parametrize("room", _OURS)
def test_a_room_imports_what_it_may(room: str) -> None:
    found = [each for each in imported(room) if each[1].startswith(("services", "shared"))]
    assert found
    assert [each for each in found if not _is_one_of(each[1], _OURS[room])] == []


def test_the_client_needs_an_event_loop_in_one_place() -> None:
    found = [each for each in imported("client/carillon/*.py") if each[1].partition(".")[0] in _IN_THE_CLIENT]
    assert {name.partition(".")[0] for _, name in found} == set(_IN_THE_CLIENT)
    assert [each for each in found if Path(each[0]).stem not in _IN_THE_CLIENT[each[1].partition(".")[0]]] == []


def test_the_wire_needs_msgspec_only() -> None:
    found = {name.partition(".")[0] for _, name in imported("client/carillon/wire/*.py")} - sys.stdlib_module_names
    assert found == {"carillon", "msgspec"}
    ours = {name for _, name in imported("client/carillon/wire/*.py") if name.startswith("carillon")}
    assert all(name.startswith("carillon.wire") for name in ours)


def test_only_the_wiring_chooses_how_a_server_is_reached() -> None:
    names = [f"shared.drivers.{name}" for name in _IMPLEMENTATIONS]
    found = [each for each in imported("services/**/*.py", "shared/**/*.py") if each[1] in names]
    assert {name for _, name in found} == set(names)
    assert [each for each in found if not _is_one_of(each[0], _CHOOSING)] == []


def test_only_stores_know_mongodb() -> None:
    found = [each for each in imported("shared/**/*.py") if each[1].partition(".")[0] in {"bson", "gridfs", "pymongo"}]
    stores = ("shared/store.py", "shared/*/store*.py", "shared/drivers/mongo/*.py")
    assert [each for each in found if not _is_one_of(each[0], stores)] == []


def test_rules_never_wait() -> None:
    waiting = (ast.AsyncFor, ast.AsyncFunctionDef, ast.AsyncWith, ast.Await)
    paths = [*CHECKOUT.glob("shared/core/*.py"), *CHECKOUT.glob("shared/*/rules/*.py")]
    trees = {path: ast.parse(path.read_text("utf-8")) for path in paths}
    assert [path for path, tree in trees.items() if any(isinstance(node, waiting) for node in ast.walk(tree))] == []
