"""Between callers: while one does its worst, another one's callbacks come within a second of their time."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import median

import pytest

from shared.domain.callbacks import Callback, HttpCallback, RabbitCallback
from shared.domain.recurrence import Every
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


async def other_is_late_by(house: House, worst: Definition, schedules: int) -> list[float]:
    """While one caller has so many schedules that all come due: by how much another one's calls come late."""
    await house.start("scheduler")
    await house.start("worker", **OPEN)
    async with callee() as healthy:
        await accept(house, WORST, [worst] * schedules)
        first = await house.with_.time.now() + 3 * SECOND
        await beats(house, healthy.url, first)
        await healthy.got(BEATS, seconds=BEATS + 60)
        return lateness(healthy)


async def silence(house: House, server: Callee) -> Definition:
    first = await house.with_.time.now() + 4 * SECOND
    return Definition(callback=HttpCallback(url=server.url, payload=PAYLOAD), instants=(first,))


async def test_calls_to_a_silent_target_hold_up_no_others(house: House) -> None:
    """A call that waited for a silent one would come after the time-out of ten seconds at the earliest."""
    async with callee(thinks_for=SILENT) as silent:
        late = await other_is_late_by(house, await silence(house, silent), 600)
    assert min(late) >= 0
    assert median(late) <= 1, f"{late}"
    assert max(late) <= 5, f"{late}"


@pytest.mark.slow
async def test_others_are_a_second_late_at_most_while_one_calls_a_silent_target(house: House) -> None:
    async with callee(thinks_for=SILENT) as silent:
        late = await other_is_late_by(house, await silence(house, silent), 3_000)
    assert max(late) <= 1, f"{late}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["http", "rabbitmq"])
async def test_others_are_a_second_late_at_most_while_one_has_thousands_each_second(house: House, kind: str) -> None:
    """Each of them fails, and is tried again a hundred times at the shortest pause."""
    async with callee(thinks_for=SILENT) as silent:
        http = HttpCallback(url=silent.url, payload=PAYLOAD)
        callback: Callback = http if kind == "http" else RabbitCallback(queue="nowhere", payload=PAYLOAD)
        every = Every(1, await house.with_.time.now())
        late = await other_is_late_by(house, Definition(callback=callback, recurrence=every, retry=PATIENT), 10_000)
    assert max(late) <= 1, f"{late}"
