"""What is asked for at once goes together, and each gets its own answer."""

import asyncio
from collections.abc import Sequence

import pytest

from shared.core.errors import Unavailable
from shared.runtime.cached import Coalescer


class Doubling:
    """Work that waits until it is let go; -1 is an error of everybody's."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.gate = asyncio.Event()

    async def __call__(self, asked: Sequence[int]) -> list[int]:
        self.calls.append(list(asked))
        await self.gate.wait()
        if -1 in asked:
            raise Unavailable("away")
        return [2 * each for each in asked]


async def begun(together: Coalescer[int, int], *asked: int) -> "list[asyncio.Task[int]]":
    tasks = [asyncio.ensure_future(together(each)) for each in asked]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_the_first_goes_at_once_and_those_who_come_meanwhile_together() -> None:
    work = Doubling()
    together = Coalescer(work, most=3)
    first = await begun(together, 1)
    assert work.calls == [[1]]
    others = await begun(together, 2, 3, 4, 5)
    assert work.calls == [[1]]
    work.gate.set()
    assert await asyncio.gather(*first, *others) == [2, 4, 6, 8, 10]
    assert work.calls == [[1], [2, 3, 4], [5]]
    assert await together(6) == 12
    assert work.calls[-1] == [6]


async def test_an_error_is_of_those_who_went_together_alone() -> None:
    work = Doubling()
    together = Coalescer(work)
    first = await begun(together, 1)
    others = await begun(together, -1, 2)
    work.gate.set()
    assert await asyncio.gather(*first) == [2]
    for other in others:
        with pytest.raises(Unavailable):
            await other
    assert await together(3) == 6


async def test_who_gives_up_takes_nobody_along() -> None:
    work = Doubling()
    together = Coalescer(work)
    [first] = await begun(together, 1)
    waiting, leaving = await begun(together, 2, 3)
    leaving.cancel()
    first.cancel()
    work.gate.set()
    assert await waiting == 4
    assert work.calls == [[1], [2]]
    assert first.cancelled()


async def test_who_comes_when_all_others_have_left_is_answered() -> None:
    work = Doubling()
    together = Coalescer(work)
    [first] = await begun(together, 1)
    [second] = await begun(together, 2)
    second.cancel()
    await asyncio.sleep(0)
    work.gate.set()
    assert await together(3) == 6
    assert await first == 2


async def test_large_ones_go_with_fewer_others_and_one_that_is_too_large_alone() -> None:
    work = Doubling()
    together = Coalescer(work, most=10, size=lambda asked: asked)
    first = await begun(together, 1)
    others = await begun(together, 4, 6, 1, 50, 9)
    work.gate.set()
    assert await asyncio.gather(*first, *others) == [2, 8, 12, 2, 100, 18]
    assert work.calls == [[1], [4, 6], [1], [50], [9]]


async def test_behind_a_round_of_several_those_who_come_one_by_one_go_together() -> None:
    work = Doubling()
    work.gate.set()
    together = Coalescer(work, linger_seconds=1.0)

    async def ask(*asked: int) -> None:
        tasks = []
        for each in asked:
            tasks += await begun(together, each)
        await asyncio.gather(*tasks)

    await ask(1, 2)
    assert work.calls == [[1], [2]]  # a few never wait
    await asyncio.gather(*await begun(together, 3, 4, 5, 6))
    await ask(7, 8)
    await ask(9, 10)
    assert work.calls == [[1], [2], [3, 4, 5, 6], [7, 8], [9], [10]]
