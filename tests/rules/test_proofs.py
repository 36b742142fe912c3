"""The table of promises in `tests/README.md` names tests that are there and in the gate."""

import re
from pathlib import Path

from tests.tiers import LATER_PATHS

TESTS = Path(__file__).parents[1]
PAGE = (TESTS / "README.md").read_text("utf-8")
TABLE = PAGE.partition("## Which test of the gate proves which promise")[2].partition("\n## ")[0]


def test_each_promise_has_a_test_in_the_gate() -> None:
    named = 0
    for row in TABLE.splitlines()[4:]:
        module = ""
        for path, test in re.findall(r"`(?:([\w/]+\.py)(?:::)?)?(test_\w+)?`", row):
            module = path or module
            if not module:
                continue
            named += 1
            text = (TESTS / module).read_text("utf-8")
            later = any(f"tests/{module}".startswith(folder) for folder in LATER_PATHS)
            assert not test or re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), f"{module} has no {test}"
            assert not later or "mark.proof" in text, f"no test of {module} is in the gate"
    assert named > 20
