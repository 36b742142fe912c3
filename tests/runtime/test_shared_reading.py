"""One reading for all who ask within a while."""

import asyncio

import pytest

from shared.runtime.shared_reading import SharedReading


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
    fresh = SharedReading(source.read, seconds=2, monotonic=lambda: source.now)
    assert await asyncio.gather(*(fresh.get() for _ in range(10))) == [1] * 10
    source.now = 1.9
    assert await fresh.get() == 1
    source.now = 2.0
    assert await fresh.get() == 2


async def test_a_failure_is_not_kept() -> None:
    source = Source()
    source.fails = True
    fresh = SharedReading(source.read, seconds=2, monotonic=lambda: source.now)
    with pytest.raises(ValueError, match="away"):
        await fresh.get()
    source.fails = False
    assert await fresh.get() == 2
