"""Between callers: while one does its worst, another one's callbacks come within a second of their time."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from shared.domain.callbacks import HttpCallback
from shared.domain.schedules import Definition, RetryPolicy
from shared.flow.drafts import Accepted, Wanted
from tests.e2e.callees import OPEN, PAYLOAD, Callee, callee
from tests.e2e.house import House

pytestmark = pytest.mark.native

WORST, OTHER = "token:worst", "token:other"
SILENT = 60.0
PATIENT = RetryPolicy(attempts=100, first_delay_seconds=0.1, factor=1)
BEATS = 20
SECOND = timedelta(seconds=1)


async def accept(house: House, namespace: str, definitions: Sequence[Definition]) -> None:
    wanted = [Wanted(namespace, f"k{n}", definition) for n, definition in enumerate(definitions)]
    for start in range(0, len(wanted), 1_000):
        answers = await house.with_.schedules.accept(wanted[start : start + 1_000])
        assert all(isinstance(answer, Accepted) for answer in answers)


async def beats(house: House, url: str, first: datetime) -> None:
    """What the other caller has: a call each second."""
    call = HttpCallback(url=url, payload=PAYLOAD)
    await accept(house, OTHER, [Definition(callback=call, instants=tuple(first + n * SECOND for n in range(BEATS)))])


def lateness(server: Callee) -> list[float]:
    """By how many seconds each came late, in the order of their instants."""
    calls = sorted(server.all, key=lambda each: each.due)
    return [round((each.at - each.due).total_seconds(), 2) for each in calls]


async def test_calls_to_a_silent_target_do_not_delay_another_callers(house: House) -> None:
    await house.start("scheduler")
    await house.start("worker", **OPEN)
    async with callee(thinks_for=SILENT) as silent, callee() as healthy:
        first = await house.with_.time.now() + 6 * SECOND
        silence = HttpCallback(url=silent.url, payload=PAYLOAD)
        await accept(house, WORST, [Definition(callback=silence, instants=(first,)) for _ in range(3_000)])
        await beats(house, healthy.url, first + SECOND)
        await healthy.got(BEATS, seconds=BEATS + 40)
    late = lateness(healthy)
    assert min(late) >= 0
    assert max(late) <= 1, f"{late}"
