"""Which tests `make test` runs (the gate), and which wait for `make test-all`. This is the one place that says so.

A test is in the gate unless it has a mark of the tables below. A module has a mark of `LATER` in its `pytestmark`, and
`proof` brings a single test of it back into the gate: it proves a promise of the README with real processes. A mark of
`LATER_MARKS` is stronger than `proof`.
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.stack.places import CHECKOUT


class Tier(StrEnum):
    GATE = "gate"
    REST = "rest"
    STORM = "storm"


LATER = {
    "attack": "a large attack; test_mutated.py and runtime/test_http_protocol.py have small ones in the gate",
    "browser": "drives Chromium through every page; the gate has the main way",
    "bus_routes": "routes and pages that operate the bus; bus has its rules",
    "chaos": "kills processes and servers at every fault point; the gate has one proof of each promise",
    "e2e": "whole processes; the gate has one proof of each promise",
    "faulty_server": "a program for each fault of a server; test_healthy.py has all questions",
    "imports": "an import that a deployment runs once",
    "later": "the mark itself says why",
    "mutants": "checks the model, and not the product",
    "real_mongodb": "needs a MongoDB that CARILLON_TEST_MONGO_URL names, and is skipped without",
    "repeats": "a page or a command with more inputs; the gate has it in tests/recorded",
    "secure": "servers over TLS, with certificates that are exchanged",
    "sending": "paced sending; the models and messages/rules have it in virtual time",
    "upgrade": "the last release beside this version; skipped until there is one",
}
"""Marks of whole modules, each with the reason. A folder of this name in `tests` has only modules with its mark."""

LATER_MARKS = {
    "alone": "measures real time, so no other test may run beside it",
    "kills_servers": "kills, freezes or restarts a server, which in the gate all tests share",
    "slow": "takes long, and shows one more point of what a test of the gate shows",
}

OTHER_MARKS = {
    "native": "needs a server of the native stack; what uses the fixture `stack` has it by itself",
    "proof": "proves a promise of the README, so the gate has it whatever marks its module has",
    "recorded": "compares what the product does with tests/recorded/answers",
    "storm": "a long attack, which `make storm` makes",
}

_MODULE_MARKS = re.compile(r"^pytestmark = (?:\[\n(?:    .*\n)+\]|.*)$", re.MULTILINE)
_PROPERTY_PART = 20
_FEW_EXAMPLES = 10


def tier_of(item: pytest.Item) -> Tier:
    marks = {mark.name for mark in item.iter_markers()}
    if "storm" in marks:
        return Tier.STORM
    if marks & LATER_MARKS.keys() or (marks & LATER.keys() and "proof" not in marks):
        return Tier.REST
    return Tier.GATE


def marks_of(module: str) -> set[str]:
    """The marks that the text of a module gives to all its tests: one `pytestmark`, as the formatter leaves it."""
    found = _MODULE_MARKS.search(module)
    return set(re.findall(r"\bpytest\.mark\.(\w+)", found[0])) if found else set()


def add_options(parser: pytest.Parser) -> None:
    """`--tier` chooses a tier; without it, the tests that the command names run, all but storms."""
    parser.addoption("--tier", type=Tier, choices=list(Tier), help="run the tests of this tier (tests/tiers.py)")


def chosen(config: pytest.Config) -> Tier | None:
    """The tier that this run is of."""
    tier: Tier | None = config.getoption("--tier")
    return tier


def configure(config: pytest.Config) -> None:
    """Leave nothing to chance in the gate, and blame no test there for a socket that another one has dropped."""
    for mark, why in {**LATER, **LATER_MARKS, **OTHER_MARKS}.items():
        config.addinivalue_line("markers", f"{mark}: {why}")
    gate = chosen(config) is Tier.GATE
    # How long an example takes says how busy the machine is.
    calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=gate)
    settings.register_profile("carillon", calm)
    settings.load_profile("carillon")
    if gate:
        # Hypothesis also draws from the constants of all modules loaded so far, which differ from worker to worker.
        vars(providers)["_get_local_constants"] = lambda: providers._local_constants
        config.addinivalue_line(
            "filterwarnings", r"default:(?s).*ResourceWarning:pytest.PytestUnraisableExceptionWarning"
        )


def ignores(config: pytest.Config, path: Path) -> bool | None:
    """Whether a module need not even be imported, as no test of it is in the gate. `None` leaves it to others."""
    if chosen(config) is not Tier.GATE or path.suffix != ".py" or not path.is_relative_to(CHECKOUT):
        return None
    text = path.read_text("utf-8") if path.name.startswith("test_") else ""
    later = marks_of(text) & {*LATER, *LATER_MARKS, "storm"}
    return True if later and "mark.proof" not in text else None


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier. The rest has the gate's properties again, with examples drawn by chance."""
    mark_native(items)
    tier = chosen(config)
    if tier is not Tier.REST:
        _try_fewer_examples(items)
    wanted = [item for item in items if _is_wanted(item, tier, storm=config.getoption("--storm"))]
    if left_out := set(items) - set(wanted):
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = wanted


def _is_wanted(item: pytest.Item, tier: Tier | None, *, storm: bool) -> bool:
    belongs = tier_of(item)
    if belongs is Tier.STORM:
        return storm
    return tier is None or belongs is tier or (tier is Tier.REST and _is_property(item))


def _is_property(item: pytest.Item) -> bool:
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)  # Hypothesis adds its mark later


def mark_native(items: Sequence[pytest.Item]) -> None:
    """Mark what uses a server. A test that asks for its server in another way has the mark of its own."""
    for item in items:
        if "stack" in getattr(item, "fixturenames", ()):
            item.add_marker("native")


def _try_fewer_examples(items: Sequence[pytest.Item]) -> None:
    for test in _functions(items):
        if given := getattr(test, "_hypothesis_internal_use_settings", None):
            most = max(given.max_examples // _PROPERTY_PART, min(given.max_examples, _FEW_EXAMPLES))
            vars(test)["_hypothesis_internal_use_settings"] = settings(given, max_examples=most)


def _functions(items: Sequence[pytest.Item]) -> Iterator[Any]:
    yield from {test for item in items if (test := getattr(item, "function", None)) is not None}


def and_rarely(*usual: Any, rarely: Sequence[Any]) -> list[Any]:
    """Values of a parametrized test. The last ones take long and show the same protocol at one more point, so they are
    `slow`; the models pass through all of these points in every run."""
    return [*usual, *(pytest.param(value, marks=pytest.mark.slow) for value in rarely)]
