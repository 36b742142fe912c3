"""The product's code as Python parses it, once for all rules: one worker runs them (`tests/rows.py`)."""

import ast
from functools import cache

from shared.runtime.lifecycle import pause_collection
from tests.stack.places import CHECKOUT

SERVER = ("contrib", "services", "shared")
CLIENT = ("client",)  # a distribution of its own, which calls things as the API does

KINDS = (ast.AsyncFunctionDef, ast.FunctionDef, ast.ClassDef, ast.Call, ast.Compare, ast.MatchValue, ast.Expr)


@cache
def nodes(*folders: str) -> list[tuple[str, ast.AST]]:
    """The nodes that rules look at, each with the path of its module, from all modules below these folders."""
    paths = (path for folder in folders for path in sorted((CHECKOUT / folder).rglob("*.py")))
    with pause_collection():
        return [
            (str(path.relative_to(CHECKOUT)), node)
            for path in paths
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, KINDS)
        ]
