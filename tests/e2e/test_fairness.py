"""Between callers: while one does its worst, another one's callbacks come in time."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import pytest

from shared.domain.callbacks import HttpCallback
from shared.domain.schedules import Definition
from shared.flow.drafts import Accepted, Wanted
from tests.e2e.callees import OPEN, PAYLOAD, Callee, callee
from tests.e2e.house import House

pytestmark = pytest.mark.native

WORST, OTHER = "token:worst", "token:other"
SILENT = 60.0
TIMEOUT = 10.0
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


async def other_is_late_by(house: House, schedules: int, worst: Callable[[datetime], Definition]) -> list[float]:
    """While one caller has so many schedules that all come due: by how much another one's calls come late."""
    await house.start("scheduler")
    await house.start("worker", **OPEN)
    async with callee() as healthy:
        first = await house.with_.time.now() + 10 * SECOND
        await accept(house, WORST, [worst(first)] * schedules)
        await beats(house, healthy.url, first + SECOND)
        await healthy.got(BEATS, seconds=BEATS + 60)
        return lateness(healthy)


def once(server: Callee) -> Callable[[datetime], Definition]:
    return lambda first: Definition(callback=HttpCallback(url=server.url, payload=PAYLOAD), instants=(first,))


async def test_calls_to_a_silent_target_hold_up_no_others(house: House) -> None:
    """600 silent calls keep the 200 places of a worker for 30 seconds. Who waited for one of them would wait for its
    time-out of ten seconds at least; how late the others come beside that is a matter of the machine's load."""
    async with callee(thinks_for=SILENT) as silent:
        late = await other_is_late_by(house, 600, once(silent))
    assert min(late) >= 0
    assert max(late) < TIMEOUT, f"{late}"
