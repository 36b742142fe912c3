"""Futures of records that were handed to brokers; they end when the brokers acknowledge the records."""

import asyncio
from collections.abc import Iterable
from typing import Any

from shared.domain.errors import Unavailable


def is_well(done: asyncio.Future[Any]) -> bool:
    """Whether the brokers acknowledged the record."""
    return done.done() and not done.cancelled() and done.exception() is None


def is_of_producer(done: asyncio.Future[Any]) -> bool:
    """Whether this end is a reason to replace the producer. `Unavailable` comes from a line, not from the producer."""
    return not is_well(done) and (done.cancelled() or not isinstance(done.exception(), Unavailable))


def translate(done: asyncio.Future[Any]) -> asyncio.Future[None]:
    """A future that ends with `done`; it raises `Unavailable` if that fails or is cancelled."""
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    told.add_done_callback(look_at)

    def tell(done: asyncio.Future[Any]) -> None:
        if told.done():
            return
        if is_well(done):
            told.set_result(None)
        else:
            told.set_exception(Unavailable(f"Kafka: {'given up' if done.cancelled() else done.exception()!r}"))

    done.add_done_callback(tell)
    return told


def abandon_all(handed: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel these futures, because the rest of their call failed."""
    for future in handed:
        future.cancel()


def look_at(done: asyncio.Future[Any]) -> None:
    """Retrieve the error, so that asyncio does not log it: the caller may not await this future any more."""
    if not done.cancelled():
        done.exception()
