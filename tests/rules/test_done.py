"""Strict rules for the modules of finished subjects, which `done.txt` lists."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rules.test_size import UNWANTED, texts
from tests.stack.places import CHECKOUT

LINES, FUNCTION_LINES = range(60, 451), 40


def done() -> Iterator[Path]:
    patterns = (Path(__file__).parent / "done.txt").read_text("utf-8").splitlines()
    for pattern in patterns:
        paths = [path for path in sorted(CHECKOUT.glob(pattern)) if path.stat().st_size] if pattern[0] != "#" else []
        assert paths or pattern[0] == "#", f"{pattern} names no module"
        yield from paths


@pytest.mark.parametrize("path", [*done()], ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_a_module_of_a_finished_subject_is_a_chapter(path: Path) -> None:
    source = path.read_text("utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert len(source.splitlines()) in LINES
    assert [each.name for each in functions if each.end_lineno - each.lineno >= FUNCTION_LINES] == []  # type: ignore[operator]
    assert [text for text in texts(path) if UNWANTED.search(text)] == []
    inside = [node for each in functions for node in ast.walk(each) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(node) for node in inside if path.parts[-3] != "cli"] == []
