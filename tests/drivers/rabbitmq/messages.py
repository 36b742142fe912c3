"""Users' messages and what is in their queues, looked at with a driver of the users' own choice."""

import asyncio
from collections.abc import Sequence

from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from shared.clock.rules.callbacks import DeliveryError, Header, QueueMessage

QUEUE = "training.invitations"


def a_message(
    number: int = 0, queue: str = QUEUE, *, exchange: str = "", headers: dict[str, Header] | None = None
) -> QueueMessage:
    return QueueMessage(exchange, queue, b'{"n":%d}' % number, f"id-{number}", headers or {})


def kinds(outcomes: Sequence[DeliveryError | None]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


async def ids_in(user: AbstractChannel, queue: str = QUEUE) -> list[str]:
    """The ids of all that is in the queue, which is empty then."""
    declared = await user.declare_queue(queue, passive=True)
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def take(message: AbstractIncomingMessage) -> None:
        seen.put_nowait(message.message_id or "")

    tag = await declared.consume(take, no_ack=True)
    async with asyncio.timeout(50):
        found = [await seen.get() for _ in range(declared.declaration_result.message_count or 0)]
    await declared.cancel(tag)
    return found + [seen.get_nowait() for _ in range(seen.qsize())]
