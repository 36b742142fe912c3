"""What is opened with its first use, once."""

import asyncio
from collections.abc import Callable

import pytest

from shared.core.errors import Unavailable
from shared.runtime.cached import Late


class Thing:
    def __init__(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class Loads:
    """Counts, and fails as long as it is told to."""

    def __init__(self) -> None:
        self.count = 0
        self.failing = False

    def __call__(self) -> Callable[[], Thing]:
        self.count += 1
        if self.failing:
            raise ImportError("no such driver")
        return Thing


@pytest.fixture
def loads() -> Loads:
    return Loads()


@pytest.fixture
def late(loads: Loads) -> Late[Thing]:
    return Late("the thing", loads)


async def test_nothing_is_loaded_before_it_is_used(late: Late[Thing], loads: Loads) -> None:
    await late.close()
    assert loads.count == 0


async def test_all_who_ask_get_one(late: Late[Thing], loads: Loads) -> None:
    things = await asyncio.gather(*(late.get() for _ in range(5)))
    assert len({id(thing) for thing in things}) == loads.count == 1


async def test_what_fails_is_tried_again_by_the_next_who_asks(late: Late[Thing], loads: Loads) -> None:
    loads.failing = True
    with pytest.raises(ImportError):
        await late.get()
    loads.failing = False
    assert isinstance(await late.get(), Thing)


async def test_it_is_closed_if_it_was_opened(late: Late[Thing]) -> None:
    thing = await late.get()
    await late.close()
    assert thing.closed


async def test_nothing_is_opened_once_it_is_closed(late: Late[Thing], loads: Loads) -> None:
    await late.close()
    with pytest.raises(Unavailable, match="the thing is closed"):
        await late.get()
    assert loads.count == 0


async def test_what_was_opened_is_not_given_out_once_it_is_closed(late: Late[Thing]) -> None:
    await late.get()
    await late.close()
    with pytest.raises(Unavailable, match="the thing is closed"):
        await late.get()


async def test_the_loop_goes_on_while_it_loads() -> None:
    loop, goes_on = asyncio.get_running_loop(), asyncio.Event()

    def load() -> Callable[[], Thing]:
        asyncio.run_coroutine_threadsafe(_set(goes_on), loop).result(timeout=10)
        return Thing

    await Late("the thing", load).get()
    assert goes_on.is_set()


async def _set(event: asyncio.Event) -> None:
    event.set()
