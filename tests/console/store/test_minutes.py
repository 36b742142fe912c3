"""The store of what was done, minute by minute."""

import asyncio
from datetime import UTC, datetime, timedelta

from shared.console.rules.processes import Counts, MinuteCounts
from shared.store import Store

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


async def test_counts_of_many_processes_add_up(store: Store) -> None:
    counts: Counts = {
        "requests": 2,
        "fired": {"http/fired": 3},
        "messages": {"accepted": 2},
        "lateness": {"2500": 1, "inf": 1},
    }
    await asyncio.gather(*(store.minutes.add(NOON + timedelta(seconds=n), counts) for n in range(20)))
    await store.minutes.add(NOON + timedelta(minutes=1), {"retries": 1})
    assert await store.minutes.since(NOON + timedelta(seconds=30)) == [
        MinuteCounts(
            id="2030-01-01T12:00",
            requests=40,
            fired={"http/fired": 60},
            messages={"accepted": 40},
            lateness={"2500": 20, "inf": 20},
        ),
        MinuteCounts(id="2030-01-01T12:01", retries=1),
    ]
    assert [each.id for each in await store.minutes.since(NOON + timedelta(minutes=1))] == ["2030-01-01T12:01"]


async def test_old_minutes_are_forgotten(store: Store) -> None:
    for n in range(5):
        await store.minutes.add(NOON + timedelta(minutes=n), {"requests": 1})
    assert await store.minutes.forget(before=NOON + timedelta(minutes=3), limit=2) == 2
    assert await store.minutes.forget(before=NOON + timedelta(minutes=3), limit=2) == 1
    assert [each.id for each in await store.minutes.since(NOON)] == ["2030-01-01T12:03", "2030-01-01T12:04"]
