"""The code that all parts of the Kafka stream share: deadlines, translated errors, and ends that cannot hang."""

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
    """A driver's client with a `stop` that may hang."""

    def stop(self) -> Awaitable[None]: ...


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise `Unavailable` for whatever goes wrong between us and the cluster."""
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as error:
        raise Unavailable(f"Kafka: {type(error).__name__}: {error}") from error


async def stop(client: Stoppable) -> None:
    """Stop a client, and give up on it when the broker does not let it."""
    with suppress(Exception):
        async with asyncio.timeout(STOP_SECONDS):
            await client.stop()
            return
    if isinstance(client, AIOKafkaProducer):
        await abandon(client)


async def abandon(producer: AIOKafkaProducer) -> None:
    """End a producer without waiting for the records that it holds.

    Left alone, it would go on trying for ever, and send them long after everybody has been told that they may not have
    arrived. The driver has no way of its own for this.
    """
    producer._closed = True  # noqa: SLF001
    sender = producer._sender.sender_task if producer._sender else None  # noqa: SLF001
    with suppress(Exception):
        async with asyncio.timeout(STOP_SECONDS):
            # Cancelled once, it still waits for what is under way; cancelled again, it ends that too.
            while sender is not None and not sender.done():
                sender.cancel()
                await asyncio.sleep(_PATIENCE_SECONDS)
    with suppress(Exception):
        async with asyncio.timeout(STOP_SECONDS):
            await producer.client.close()
