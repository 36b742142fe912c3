"""Import rules that the contracts of `pyproject.toml` cannot say."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.stack.places import CHECKOUT


def imported(path: Path) -> set[str]:
    """The packages that a module names in its imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
    return found


def modules() -> Iterator[Path]:
    return (CHECKOUT / "shared").rglob("*.py")


def test_only_stores_know_mongodb() -> None:
    knowing = [path for path in modules() if imported(path) & {"bson", "gridfs", "pymongo"}]
    assert [path for path in knowing if "mongo" not in path.parts and not path.name.startswith("store")] == []
    assert len(knowing) > 20


def test_rules_never_wait() -> None:
    waiting = (ast.AsyncFor, ast.AsyncFunctionDef, ast.AsyncWith, ast.Await)
    rules = [path for path in modules() if path.parent.name in {"core", "rules"}]
    assert [
        path for path in rules if any(isinstance(node, waiting) for node in ast.walk(ast.parse(path.read_text())))
    ] == []
    assert len(rules) > 40
