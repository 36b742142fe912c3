"""The size of the house, which only falls. `size.toml` has the most that is allowed.

A change that deletes writes the lower figures there. Only a commit that adds a feature may raise one, and says so.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.runtime.lifecycle import pause_collection
from tests.stack.places import CHECKOUT

PRODUCT = ("client", "contrib", "services", "shared")
UNWANTED = re.compile(
    r"\b(nobody|somebody|whoever|so many|one's own|hers|stands?|bears?|none of (?:yours|ours|its))\b", re.IGNORECASE
)
SLACK = 0.01
"""The part by which a figure may lie below its most before the most has to be lowered."""


def modules(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((CHECKOUT / folder).rglob("*.py"))]


def count_lines(paths: list[Path]) -> int:
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def texts(path: Path) -> Iterator[str]:
    """The strings with a blank in them, docstrings among them, and the lines that are comments."""
    source = path.read_text("utf-8")
    yield from (line for line in source.splitlines() if line.strip().startswith("#"))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def measure() -> dict[str, int]:
    product = modules(*PRODUCT)
    with pause_collection():
        worded = sum(UNWANTED.search(text) is not None for path in product for text in texts(path))
    return {
        "lines": count_lines(product),
        "modules": len(product),
        "lines_of_tests": count_lines(modules("tests")),
        "texts_with_unwanted_words": worded,
    }


@pytest.fixture(scope="module")
def measured() -> dict[str, int]:
    return measure()


@pytest.mark.parametrize("figure", ["lines", "modules", "lines_of_tests", "texts_with_unwanted_words"])
def test_the_house_does_not_grow(measured: dict[str, int], figure: str) -> None:
    most = tomllib.loads((CHECKOUT / "tests/rules/size.toml").read_text("utf-8"))[figure]
    assert measured[figure] <= most, f"{figure} grew from {most} to {measured[figure]}: delete before you add"
    assert measured[figure] >= most * (1 - SLACK) - 1, f"write the lower figure into size.toml: {measured[figure]}"
