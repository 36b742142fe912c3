"""Deadlines, translated errors and bounded ends for all parts of the Kafka stream."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from shared.domain.errors import Unavailable

STOP_SECONDS = 3.0
_PATIENCE_SECONDS = 0.1


class Stoppable(Protocol):
    """A client of the driver whose `stop` may hang."""

    def stop(self) -> Awaitable[None]: ...


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise `Unavailable` for errors of Kafka, the network and time-outs."""
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as error:
        raise Unavailable(f"Kafka: {type(error).__name__}: {error}") from error


async def stop(client: Stoppable) -> None:
    """Stop a client within `STOP_SECONDS`, or abandon it: a broker may let it hang."""
    with suppress(Exception):
        async with asyncio.timeout(STOP_SECONDS):
            await client.stop()
            return
    if isinstance(client, AIOKafkaProducer):
        await abandon(client)


async def abandon(producer: AIOKafkaProducer) -> None:
    """End a producer without waiting for its records.

    Otherwise it would retry for ever, and send the records long after the callers were told that they may be lost. The
    driver has no method for this.
    """
    producer._closed = True  # noqa: SLF001
    sender = producer._sender.sender_task if producer._sender else None  # noqa: SLF001
    with suppress(Exception):
        async with asyncio.timeout(STOP_SECONDS):
            # The first cancellation still waits for the records under way; the second one ends that wait.
            while sender is not None and not sender.done():
                sender.cancel()
                await asyncio.sleep(_PATIENCE_SECONDS)
    with suppress(Exception):
        async with asyncio.timeout(STOP_SECONDS):
            await producer.client.close()
