"""Schedules in great number, for the measures of the clock, put in as the API does but without HTTP."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import islice
from time import monotonic
from typing import Any, Self

from msgspec import Struct
from pymongo.asynchronous.database import AsyncDatabase

from shared.clock.rules.callbacks import RabbitCallback
from shared.clock.rules.occurrences import Occurrence, once
from shared.clock.rules.schedules import Definition
from shared.clock.schedules import Accepted, Wanted
from shared.store import Store
from tests.bench.place import ADMIN, Place
from tests.bench.report import Wrong
from tests.e2e.house import House
from tests.stack.places import say

QUEUE = "users.queue"
NAMESPACE = f"user:{ADMIN}"
PAYLOAD = '{"id":"42"}'
_CHUNK = 2_000
_CHUNKS_IN_FLIGHT = 2
_TELL_SECONDS = 30.0


class Sizes(Struct, frozen=True):
    """How many entries the measures of the clock take."""

    fire: int = 30_000
    wall: int = 100_000
    race: int = 20_000
    claimed: int = 50_000
    bulk: int = 10_000
    crash: int = 5_000
    silent: int = 3_000
    flood: int = 10_000
    pending: int = 1_000_000
    large: int = 10_000_000

    def scaled(self, share: float) -> Self:
        """The same share of each."""
        return type(self)(*(max(round(getattr(self, name) * share), 100) for name in self.__struct_fields__))


@asynccontextmanager
async def clock_house(place: Place, **settings: str) -> AsyncIterator[House]:
    """A house whose database goes with it, or with our own server, which takes minutes to drop a million documents."""
    async with place.house(**settings) as house:
        try:
            yield house
        finally:
            await house.end()
            if "mongo" not in place.pids:
                await house.servers.store._client.drop_database(database(house).name)


def database(house: House) -> AsyncDatabase[dict[str, Any]]:
    """The house's database itself, for the oracles."""
    return house.servers.store._database


async def fill(house: House, count: int, due: Callable[[int], datetime], *, prefix: str) -> None:
    """Schedules of one instant each: `key(prefix, n)` is due at `due(n)`."""
    callback = RabbitCallback(queue=QUEUE, payload=PAYLOAD)
    numbers = iter(range(count))
    told = _Told(count, "schedules")

    async def put() -> None:
        for chunk in _chunks(numbers):
            wanted = [
                Wanted(NAMESPACE, key(prefix, n), Definition(callback=callback, instants=(due(n),))) for n in chunk
            ]
            answers = await house.schedules.accept(wanted)
            if refused := [answer for answer in answers if not isinstance(answer, Accepted)]:
                raise Wrong(f"{len(refused)} of {len(answers)} schedules refused: {refused[0]}")
            told.more(len(chunk))

    await asyncio.gather(*(put() for _ in range(_CHUNKS_IN_FLIGHT)))


async def fill_pending(store: Store, count: int, due: Callable[[int], datetime], now: datetime) -> None:
    """Occurrences alone, whose schedules nobody will look for: number n is due at `due(n)`."""
    generation = secrets.token_hex(8)
    numbers = iter(range(count))
    told = _Told(count, "occurrences")

    async def put() -> None:
        for chunk in _chunks(numbers):
            await store.occurrences.add([_alone(generation, n, due(n), now) for n in chunk])
            told.more(len(chunk))

    await asyncio.gather(*(put() for _ in range(_CHUNKS_IN_FLIGHT)))


def key(prefix: str, number: int) -> str:
    """The key of a number: in the order of the numbers."""
    return f"{prefix}{number:08}"


def far_ahead(now: datetime) -> Callable[[int], datetime]:
    """Instants over some ten years, of which the first is a day away: numbers that follow each other lie far apart."""
    first = now + timedelta(days=1)
    return lambda n: first + timedelta(seconds=n * 7919 % 315_000_000)


def _alone(generation: str, number: int, due: datetime, now: datetime) -> Occurrence:
    return once(f"schedule/{NAMESPACE}/{number:08}", generation, due, accepted_at=now)


def _chunks(numbers: Iterator[int]) -> Iterator[list[int]]:
    while chunk := list(islice(numbers, _CHUNK)):
        yield chunk


class _Told:
    """Says now and then how far it has come, where it takes long."""

    def __init__(self, count: int, what: str) -> None:
        self._count, self._what = count, what
        self._done, self._next = 0, monotonic() + _TELL_SECONDS

    def more(self, some: int) -> None:
        self._done += some
        if monotonic() >= self._next:
            self._next = monotonic() + _TELL_SECONDS
            say(f"{self._done:,} of {self._count:,} {self._what} are in")
