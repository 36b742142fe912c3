"""No test waits without a limit: what would wait for ever is found by its shape."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.runtime.lifecycle import pause_collection

TESTS = Path(__file__).parents[1]
MODULES = [
    path for path in sorted(TESTS.rglob("*.py")) if path.relative_to(TESTS).parts[0] not in {"bench", "mutation"}
]
SUSPECT = re.compile(r"\bwhile\b|subprocess")
RUNS = {"run", "call", "check_call", "check_output"}


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    texts = {str(path.relative_to(TESTS)): path.read_text() for path in MODULES}
    with pause_collection():
        return {name: ast.parse(text) for name, text in texts.items() if SUSPECT.search(text)}


def test_a_program_has_a_time_out(trees: dict[str, ast.Module]) -> None:
    assert not [
        f"{name}:{call.lineno}"
        for name, tree in trees.items()
        for call in _calls(tree)
        if _runs_a_program(call) and not {"timeout", None} & {keyword.arg for keyword in call.keywords}
    ]


def test_a_loop_that_polls_is_not_left_to_a_cancellation(trees: dict[str, ast.Module]) -> None:
    """`wait_for` of Python 3.11 may swallow the one cancellation of `asyncio.timeout`: `until` looks at the clock
    itself."""
    assert not [
        f"{name}:{loop.lineno}"
        for name, tree in trees.items()
        for block in ast.walk(tree)
        if isinstance(block, ast.AsyncWith) and any(_is_timeout(each.context_expr) for each in block.items)
        for loop in block.body
        if isinstance(loop, ast.While)
    ]


def test_no_loop_only_sleeps(trees: dict[str, ast.Module]) -> None:
    assert not [
        f"{name}:{loop.lineno}"
        for name, tree in trees.items()
        if not name.startswith("models/")  # their time is virtual
        for loop in ast.walk(tree)
        if isinstance(loop, ast.While) and len(loop.body) == 1 and _sleeps(loop.body[0])
    ]


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _runs_a_program(call: ast.Call) -> bool:
    called = call.args[0] if ast.unparse(call.func) == "asyncio.to_thread" and call.args else call.func
    return isinstance(called, ast.Attribute) and called.attr in RUNS and ast.unparse(called.value) == "subprocess"


def _is_timeout(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Call) and ast.unparse(expression.func) == "asyncio.timeout"


def _sleeps(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("await asyncio.sleep(")
