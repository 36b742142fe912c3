"""The protocol, broken on purpose: for each flaw the explorer finds how it goes wrong."""

from typing import NamedTuple

import pytest

from shared.domain.jobs.batches import BatchStatus
from tests.domain.protocol.explore import exhaust, start
from tests.domain.protocol.world import Entry, Faults, Flaw, Message, Promise, Rules, World

ENOUGH = 150_000


class Case(NamedTuple):
    """A flaw, the promise that it breaks, and a world in which it does.

    With an `owner`, that lane has the batch, and two messages tell of it.
    """

    flaw: Flaw
    broken: Promise
    faults: Faults
    batches: int = 1
    devices: int = 0
    workers: int = 2
    planners: int = 0
    users: int = 0
    rules: Rules = Rules()
    owner: str = ""


CASES = (
    Case(Flaw.NO_FENCE, Promise.TWICE, Faults(double=1)),
    Case(Flaw.MARKER_BEFORE_FENCE, Promise.TWICE, Faults(double=1)),
    Case(Flaw.ERROR_IS_NO_MARKER, Promise.TWICE, Faults(crash=1, silent=1)),
    Case(Flaw.MARKER_OUTSIDE, Promise.TWICE, Faults(crash=1)),
    Case(Flaw.BLIND_CLEAR, Promise.TWICE, Faults(), owner="gone.0"),
    Case(Flaw.BLIND_RELEASE, Promise.TWICE, Faults(double=1, refuse=1)),
    Case(Flaw.BELIEVED_COMMIT, Promise.UNTRUE, Faults(silent=1)),
    Case(Flaw.BELIEVED_ABORT, Promise.TWICE, Faults(silent=1)),
    Case(Flaw.BELIEVED_TAKE, Promise.TWICE, Faults(double=1, silent=1)),
    Case(Flaw.REUSED_LANE, Promise.TWICE, Faults(crash=1), owner="w0.0"),
    Case(Flaw.LATE_START, Promise.TWICE, Faults(double=1)),
    Case(Flaw.GREEDY_FEED, Promise.TWICE, Faults(chores=1, crash=1), batches=2),
    Case(Flaw.SCAN_BY_STATUS, Promise.CROWDED, Faults(clicks=2, chores=1), batches=2, workers=1, users=1),
    Case(Flaw.SUCCESSOR_OF_PARKED, Promise.CROWDED, Faults(clicks=2), batches=2, users=1),
    Case(Flaw.IGNORED_TURN, Promise.FENCED, Faults(chores=1), rules=Rules(patient=True)),
    Case(Flaw.REQUEUED_LOSERS, Promise.CHURN, Faults(double=1), rules=Rules(takes=2)),
    Case(Flaw.DROPPED_OWNED, Promise.ILLEGAL, Faults(clicks=1, chores=2), users=1),
    Case(Flaw.OPEN_END, Promise.TOTALS, Faults(), batches=0, devices=3, workers=1, planners=1),
    Case(Flaw.STUBBORN_PLANNER, Promise.TORN, Faults(double=1), batches=0, devices=4, workers=1, planners=2),
    Case(
        Flaw.UNENDED_STOP,
        Promise.TOTALS,
        Faults(clicks=1, chores=3),
        batches=0,
        devices=3,
        workers=1,
        planners=1,
        users=1,
    ),
    Case(Flaw.ANY_PART, Promise.UNTRUE, Faults(crash=1), rules=Rules(parts=2)),
    Case(Flaw.ANY_TAKE, Promise.UNTRUE, Faults(double=1, silent=1), rules=Rules(parts=2)),
    Case(Flaw.STALE_PART, Promise.TWICE, Faults(double=1), rules=Rules(parts=2)),
    Case(Flaw.NO_UPKEEP, Promise.NEVER, Faults(purge=1), batches=2),
)


def world_of(case: Case, rules: Rules) -> World:
    world = start(
        rules,
        case.faults,
        batches=case.batches,
        devices=case.devices,
        workers=case.workers,
        planners=case.planners,
        users=case.users,
    )
    if not case.owner:
        return world
    owned = Entry(0, 1, BatchStatus.SENDING, turn=1, attempts=1, owner=case.owner)
    return world._replace(entries=(owned, *world.entries[1:]), messages=(Message("send", 0, 1),) * 2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.flaw.name.lower())
def test_a_flaw_is_found(case: Case) -> None:
    rules = case.rules._replace(flaw=case.flaw)
    seen, found = exhaust(world_of(case, rules), rules, limit=ENOUGH, only=frozenset({case.broken}))
    assert found is not None, f"{seen} worlds, and nothing wrong"
    assert found.promise.startswith(case.broken)


def test_every_flaw_has_a_case() -> None:
    assert {case.flaw for case in CASES} == set(Flaw)
