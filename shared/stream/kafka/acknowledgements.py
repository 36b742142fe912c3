"""Records that were handed to brokers, as futures that end when these are acknowledged."""

import asyncio
from collections.abc import Iterable
from typing import Any

from shared.domain.errors import Unavailable


def is_well(done: asyncio.Future[Any]) -> bool:
    """Whether it is acknowledged."""
    return done.done() and not done.cancelled() and done.exception() is None


def is_of_producer(done: asyncio.Future[Any]) -> bool:
    """Whether what has ended so is a reason to mistrust the producer: what failed in a line, the line's own has."""
    return not is_well(done) and (done.cancelled() or not isinstance(done.exception(), Unavailable))


def translate(done: asyncio.Future[Any]) -> asyncio.Future[None]:
    """A future that ends with `done`, and with `Unavailable` where that fails or is given up."""
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
    """Let go what was handed over: the rest of it failed."""
    for future in handed:
        future.cancel()


def look_at(done: asyncio.Future[Any]) -> None:
    """Nobody may ask for it any more: then its error is not to be told of."""
    if not done.cancelled():
        done.exception()
