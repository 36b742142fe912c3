"""Which tests `make test` runs (the gate), and which wait for `make test-all`. This is the one place that says so.

A test is in the gate unless a path or a mark below names it. `proof` brings a single test of a named path back into the
gate: it proves a promise of the README with real processes. A mark of `LATER_MARKS` is stronger than `proof`.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache
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


_EXAMINED = ("command", "kafka", "mongodb", "others", "rabbitmq")
LATER_PATHS = {
    "tests/browser": "drives Chromium through every page; the gate has the main way",
    "tests/chaos": "kills processes and servers at every fault point; the gate has one proof of each promise",
    "tests/client/other_languages": "generates and compiles clients in Go and TypeScript",
    "tests/client/test_installed.py": "installs the client from a package registry",
    "tests/e2e": "whole processes; the gate has one proof of each promise",
    "tests/deploy/test_site.py": "builds the documentation as a site",
    "tests/flow/bus_model/test_mutants.py": "checks the model, and not the product",
    "tests/flow/message_model/test_mutants.py": "checks the model, and not the product",
    "tests/flow/push_model/test_mutants.py": "checks the model, and not the product",
    "tests/monitoring/test_scraped.py": "a real Prometheus scrapes processes at work",
    "tests/recorded": "records what the product does; in the gate once ten recordings agreed",
    "tests/real_mongodb": "needs a MongoDB that CARILLON_TEST_MONGO_URL names, and is skipped without",
    "tests/secure": "servers over TLS, with certificates that are exchanged",
    "tests/security/test_content.py": "large attacks, judged by what they cost",
    "tests/security/test_linear_time.py": "large attacks, judged by what they cost",
    "tests/security/test_schemas.py": "thousands of requests; test_mutated.py sends broken bodies in the gate",
    "tests/security/test_slow.py": "crowds of slow peers; runtime/test_http_protocol.py has one of each in the gate",
    "tests/security/test_wire.py": "large attacks, judged by what they cost",
    **dict.fromkeys(
        (f"tests/services/commands/doctor/test_{of}.py" for of in _EXAMINED),
        "a program for each fault of a server; test_healthy.py has all questions",
    ),
    "tests/services/api/bus/native": "routes that operate the bus; flow/bus and store/bus have their rules",
    "tests/services/api/bus/pages": "pages that operate the bus",
    "tests/services/fanout/test_replays.py": "replays; the bus's model has deaths, and test_fan_out.py its promise",
    "tests/services/api/jobs/test_uploads_at_once.py": "waits for time-outs; test_part_uploads.py has the rules",
    "tests/services/api/http/pages/test_costs.py": "counts what a thousand of each make a page ask",
    "tests/services/api/http/pages/test_viewers.py": "twenty viewers at a time",
    "tests/contrib/import_marathon": "an import that a deployment runs once",
    "tests/contrib/import_routemaster": "an import that a deployment runs once",
    "tests/services/embedded/test_children.py": "starts and kills servers; e2e/test_embedded.py has them at work",
    "tests/services/test_imports.py": "an interpreter for each process; cli/test_start.py has one of a command",
    "tests/services/worker/messages": "paced sending; the models and domain/messages have it in virtual time",
    "tests/stack/test_faketime.py": "checks a tool of chaos/test_clock_skewed.py, which waits, too",
    "tests/stack/test_side_by_side.py": "runs pytest on workers of its own",
    "tests/stack/test_stack.py": "starts, kills and freezes servers of its own",
    "tests/tracing/test_processes.py": "whole processes and a collector",
    "tests/upgrade": "processes of the last release beside those of this version",
}

LATER_MARKS = {
    "alone": "measures real time, so no other test may run beside it",
    "kills_servers": "kills, freezes or restarts a server, which in the gate all tests share",
    "slow": "takes long, and shows one more point of what a test of the gate shows",
}

_PROPERTY_PART = 20
_FEW_EXAMPLES = 10


def tier_of(item: pytest.Item) -> Tier:
    if item.get_closest_marker("storm"):
        return Tier.STORM
    if any(item.get_closest_marker(mark) for mark in LATER_MARKS):
        return Tier.REST
    if item.get_closest_marker("proof"):
        return Tier.GATE
    return Tier.REST if _later_path(item.nodeid.partition("::")[0]) else Tier.GATE


@cache
def _later_path(module: str) -> bool:
    return any(module == path or module.startswith(f"{path}/") for path in LATER_PATHS)


def add_options(parser: pytest.Parser) -> None:
    """`--tier` chooses a tier; without it, the tests that the command names run, all but storms."""
    parser.addoption("--tier", type=Tier, choices=list(Tier), help="run the tests of this tier (tests/tiers.py)")


def chosen(config: pytest.Config) -> Tier | None:
    """The tier that this run is of."""
    tier: Tier | None = config.getoption("--tier")
    return tier


def configure(config: pytest.Config) -> None:
    """Leave nothing to chance in the gate, and blame no test there for a socket that another one has dropped."""
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
    named = _later_path(str(path.relative_to(CHECKOUT)))
    return True if named and path.name.startswith("test_") and "mark.proof" not in path.read_text() else None


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
