"""The proofs that `docs/guarantees.md` names are there and in the gate, and `make test-of` runs them."""

import re

from tests.proofs import read_proofs
from tests.stack.places import CHECKOUT
from tests.tiers import LATER, LATER_MARKS, marks_of

PAGE = (CHECKOUT / "docs/guarantees.md").read_text("utf-8")
NAMED = re.compile(r"`(?:([\w/]+\.py)(?:::)?)?(test_\w+)?`")

RUN = tuple(f"tests/{path}" for names in read_proofs().values() for paths in names.values() for path in paths)


def test_each_promise_has_a_test_in_the_gate() -> None:
    promises = re.split(r"^\*\*", PAGE, flags=re.MULTILINE)[1:]
    assert len(promises) > 15
    for promise in promises:
        named = 0
        for line in re.findall(r"^- Proof: (.*)$", promise, re.MULTILINE):
            module = ""
            for path, test in NAMED.findall(line):
                module, named = path or module, named + 1
                text = (CHECKOUT / "tests" / module).read_text("utf-8")
                later = marks_of(text) & {*LATER, *LATER_MARKS}
                assert f"tests/{module}".startswith(RUN), f"no line of tests/proofs.toml has {module}"
                assert not test or re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), f"{module} has no {test}"
                assert not later or "mark.proof" in text, f"no test of {module} is in the gate"
        assert named, f"no proof of: {promise.splitlines()[0]}"


def test_each_proof_of_a_mechanism_is_there() -> None:
    names = [name for names in read_proofs().values() for name in names]
    assert len(names) == len(set(names)), "make test-of goes by one name"
    for path in RUN:
        module, _, test = path.partition("::")
        assert (CHECKOUT / module).exists(), f"tests/proofs.toml: {module} is gone"
        assert f"def {test}" in ((CHECKOUT / module).read_text("utf-8") if test else "def "), f"{module} has no {test}"
