"""The limit of single messages, on a real store."""

import asyncio
from datetime import UTC, datetime, timedelta

from shared.store import Store

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def take(store: Store, namespace: str, count: int, rate: float, seconds: float) -> tuple[int, float]:
    granted = await store.send_limits.take(namespace, count, rate=rate, now=NOW + timedelta(seconds=seconds))
    return granted.count, granted.wait_seconds


async def test_as_many_at_once_as_a_second_has_and_then_at_the_rate(store: Store) -> None:
    assert await take(store, "one", 3, rate=1, seconds=0) == (1, 1.0)
    assert await take(store, "one", 1, rate=1, seconds=0.6) == (0, 0.4)
    assert await take(store, "one", 1, rate=1, seconds=1) == (1, 1.0)
    assert (await take(store, "ten", 15, rate=10, seconds=0))[0] == 10
    assert await take(store, "ten", 15, rate=10, seconds=0.35) == (3, 0.05)


async def test_who_was_silent_for_long_has_no_more_than_a_second_of_the_rate(store: Store) -> None:
    await take(store, "ten", 1, rate=10, seconds=0)
    assert (await take(store, "ten", 100, rate=10, seconds=3_600))[0] == 10


async def test_below_one_a_second_one_goes_at_a_time(store: Store) -> None:
    assert await take(store, "slow", 5, rate=0.1, seconds=0) == (1, 10.0)
    assert await take(store, "slow", 5, rate=0.1, seconds=9) == (0, 1.0)


async def test_namespaces_do_not_share_and_processes_do(store: Store) -> None:
    # Of several that insert the same document at once, the stand-in answers some with nothing.
    await take(store, "shared", 1, rate=10, seconds=-10)
    taken = await asyncio.gather(*(take(store, "shared", 3, rate=10, seconds=0) for _ in range(8)))
    assert sum(count for count, _ in taken) == 10
    assert (await take(store, "other", 1, rate=10, seconds=0))[0] == 1
