"""How a credential stands at a moment."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from shared.core.instants import ms
from shared.messages.rules.credentials import (
    CredentialQueue,
    CredentialStatus,
    SendOrder,
    Traffic,
    WaitingJob,
    queue_of,
    standing_at,
)
from shared.messages.rules.pacing import Limit, Pace
from shared.messages.rules.places import AccountPlace

NOW = datetime(2026, 12, 24, 18, tzinfo=UTC)
NOW_US = ms(NOW) * 1_000
SECOND = timedelta(seconds=1)
WAITING = CredentialQueue(jobs=1, messages=10)


def traffic(*told: Limit, rate: float = 10, status: CredentialStatus = CredentialStatus.ACTIVE, **pace: Any) -> Traffic:
    """An account whose holders of places tell this."""
    places = tuple(
        AccountPlace(holder=str(number), rank=(0.0, 1, ""), until_us=NOW_US + 1, limit=limit)
        for number, limit in enumerate(told)
    )
    return Traffic(
        pace=replace(Pace(last_us=NOW_US, clock="one"), **pace),
        places=places,
        rate=rate,
        max_in_flight=20,
        order=SendOrder.AGE,
        status=status,
    )


@pytest.mark.parametrize(
    ("stands", "limit"),
    [
        (traffic(Limit.RATE), Limit.RATE),
        (traffic(), Limit.RATE),
        (traffic(Limit.RATE, Limit.IN_FLIGHT), Limit.IN_FLIGHT),
        (traffic(Limit.IN_FLIGHT, Limit.CLOCK), Limit.CLOCK),
        (traffic(free_us=NOW_US + 1), Limit.CLOCK),
        (traffic(Limit.IN_FLIGHT, hold_until_us=NOW_US + 1), Limit.PROVIDER),
        (traffic(share=0.5, slowed_us=NOW_US), Limit.PROVIDER),
        (traffic(Limit.WORK), Limit.WORK),
        (traffic(Limit.WORK, Limit.RATE), Limit.RATE),
        (traffic(last_us=NOW_US - 3_000_000), Limit.WORK),
        (traffic(last_us=NOW_US - 3_000_000, rate=0.1), Limit.RATE),
    ],
)
def test_what_bounds_it(stands: Traffic, limit: Limit) -> None:
    assert standing_at(stands, WAITING, NOW).limited_by is limit


def test_without_messages_that_may_leave_there_is_no_work() -> None:
    held = CredentialQueue(jobs=1, messages=10, held=10)
    for queue in (CredentialQueue(), held):
        assert standing_at(traffic(Limit.IN_FLIGHT, free_us=NOW_US + 1), queue, NOW).limited_by is Limit.WORK


def test_what_does_not_send_is_bounded_by_nothing() -> None:
    found = standing_at(traffic(Limit.RATE, status=CredentialStatus.SUSPENDED), WAITING, NOW)
    assert (found.limited_by, found.effective_rate) == (None, 0)


def test_it_is_slower_after_slowing_and_held_only_while_it_is() -> None:
    slowed = traffic(share=0.5, slowed_us=NOW_US - 10_000_000, hold_until_us=NOW_US + 5_000_001)
    found = standing_at(slowed, WAITING, NOW)
    assert found.effective_rate == pytest.approx(6)
    assert found.hold_until == NOW + 5 * SECOND + timedelta(milliseconds=1)
    assert standing_at(slowed, WAITING, NOW + 6 * SECOND).hold_until is None


def test_places_that_are_over_tell_nothing() -> None:
    assert standing_at(traffic(Limit.CLOCK), WAITING, NOW + SECOND).limited_by is Limit.RATE


def test_the_queue_has_all_open_jobs_and_tells_who_runs() -> None:
    jobs = [
        WaitingJob("done", NOW - 9 * SECOND, True),
        WaitingJob("paused", NOW - 8 * SECOND, False),
        WaitingJob("old", NOW - 7 * SECOND, True),
        WaitingJob("new", NOW, True),
    ]
    found = queue_of(jobs, {"paused": 5, "old": 3, "new": 2, "done": 0})
    assert found == CredentialQueue(jobs=4, messages=10, held=5, oldest=NOW - 7 * SECOND)
    assert queue_of([], {}) == CredentialQueue()
