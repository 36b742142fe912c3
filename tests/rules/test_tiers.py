"""Each mark that keeps a module out of the gate is used, and is written as `tests/tiers.py` reads it."""

import ast
import re

from tests.stack.places import CHECKOUT
from tests.tiers import LATER, LATER_MARKS, OTHER_MARKS, marks_of


def marks_as_python_reads_them(text: str) -> set[str]:
    lines = text.splitlines()
    ours = [node for node in ast.parse(text).body if lines[node.lineno - 1].startswith("pytestmark")]
    named = (each for node in ours for each in ast.walk(node) if isinstance(each, ast.Attribute))
    return {each.attr for each in named if ast.unparse(each.value) == "pytest.mark"}


def test_modules_out_of_the_gate_say_so_in_one_form() -> None:
    unused = {*LATER, *LATER_MARKS, *OTHER_MARKS}
    for path in sorted((CHECKOUT / "tests").rglob("*.py")):
        text, given = path.read_text("utf-8"), set[str]()
        if re.search(r"^\s*pytestmark\b", text, re.MULTILINE):
            given = marks_as_python_reads_them(text)
            assert given == marks_of(text) != set(), f"{path}: write pytestmark once, at the top, with pytest.mark.NAME"
            assert path.name.startswith("test_"), f"{path}: a pytestmark says nothing of other modules"
        folder = path.relative_to(CHECKOUT / "tests").parts[0]
        assert folder not in LATER or folder in given or not path.name.startswith("test_"), f"{path}: mark it {folder}"
        assert len(re.findall(r"mark\.later\b", text)) == len(re.findall(r'mark\.later\("', text)), f"{path}: say why"
        unused -= set(re.findall(r"pytest\.mark\.(\w+)", text))
    assert not unused, f"no test has these marks: {unused}"
