"""Results that callers share for a moment."""

import asyncio
from itertools import count

import pytest

from shared.core.errors import Unavailable
from shared.runtime.cached import Cached, CachedByKey


class Source:
    def __init__(self) -> None:
        self.reads = 0
        self.fails = False
        self.now = 0.0

    async def read(self) -> int:
        self.reads += 1
        await asyncio.sleep(0)
        if self.fails:
            raise ValueError("away")
        return self.reads


async def test_it_is_read_once_for_all_who_ask_within_a_while() -> None:
    source = Source()
    fresh = Cached(source.read, seconds=2, monotonic=lambda: source.now)
    assert await asyncio.gather(*(fresh.get() for _ in range(10))) == [1] * 10
    source.now = 1.9
    assert await fresh.get() == 1
    source.now = 2.0
    assert await fresh.get() == 2


async def test_a_failure_is_not_kept() -> None:
    source = Source()
    source.fails = True
    fresh = Cached(source.read, seconds=2, monotonic=lambda: source.now)
    with pytest.raises(ValueError, match="away"):
        await fresh.get()
    source.fails = False
    assert await fresh.get() == 2


async def test_a_reading_is_shared_for_its_time_and_a_failure_is_not_kept() -> None:
    now, numbers = [0.0], count()
    reads = CachedByKey[int](monotonic=lambda: now[0])

    async def read() -> int:
        await asyncio.sleep(0)
        return next(numbers)

    async def fail() -> int:
        raise Unavailable("away")

    assert await asyncio.gather(*(reads.get("a", read, seconds=2) for _ in range(3))) == [0, 0, 0]
    assert (await reads.get("b", read, seconds=2), await reads.get("a", read, seconds=0)) == (1, 2)
    now[0] = 1.9
    assert await reads.get("a", fail, seconds=2) == 2
    now[0] = 2.0
    with pytest.raises(Unavailable):
        await reads.get("a", fail, seconds=2)
    assert await reads.get("a", read, seconds=2) == 3


async def test_many_who_open_a_page_at_once_do_not_wait_one_behind_the_other() -> None:
    reads, numbers, going_on = CachedByKey[int](), count(), asyncio.Event()

    async def read() -> int:
        await going_on.wait()
        return next(numbers)

    openers = [asyncio.ensure_future(reads.get("a", read, seconds=0)) for _ in range(20)]
    await asyncio.sleep(0)
    going_on.set()
    assert await asyncio.gather(*openers) == [0, *[1] * 19]


async def test_who_waits_for_a_server_that_is_away_waits_once() -> None:
    tries, fails = 0, asyncio.Event()

    async def read() -> None:
        nonlocal tries
        tries += 1
        await fails.wait()
        raise Unavailable("away")

    reads = CachedByKey[None]()
    waiting = [asyncio.ensure_future(reads.get("all", read, seconds=2)) for _ in range(20)]
    await asyncio.sleep(0)
    fails.set()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, Unavailable) for each in ended)
    assert tries == 2, "the one that the first began, and one for all who came meanwhile"
