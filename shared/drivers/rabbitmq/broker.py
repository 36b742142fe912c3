"""The broker on RabbitMQ 3.10 and later.

It uses three connections, because RabbitMQ stops reading from a publishing connection when its memory runs low: `<name>
publish` and `<name> consume` for tasks, `<name> deliver` for users' messages, which cannot harm the tasks there. Many
publishes share one channel; each message has its own id, by which a returned message is matched. Queues are quorum
queues, and only `setup` declares any. Publishing to a missing queue costs nothing, but asking for one closes the
channel: so `depth` and the like open a channel each. Publishing to an exchange that is missing or forbidden also closes
the channel: so users' messages have a channel per exchange.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import aio_pika
import structlog
from aio_pika.abc import AbstractChannel

from shared.clock.rules.callbacks import DeliveryError, QueueMessage
from shared.console.rules.processes import QueueState
from shared.drivers.rabbitmq import PUBLISHED, published_now
from shared.drivers.rabbitmq.links import Line, rabbit_context
from shared.drivers.rabbitmq.management import Management, RabbitInspection, Unmanageable
from shared.drivers.rabbitmq.subscriptions import QueueDeliverer, RabbitSubscription
from shared.runtime.server_settings import NO_FILES, TlsSettings

log = structlog.get_logger(__name__)

ANSWER_SECONDS = 10.0
SETUP_SECONDS = 60.0
QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}


class RabbitBroker:
    """`Broker` on RabbitMQ. Each connection is opened at its first use.

    `url` is `amqp://user:password@host:port/vhost`, `management_url` is `http://user:password@host:port` or `None`;
    with TLS `amqps://` and `https://`. Raises `Invalid` if the TLS files cannot be used.
    """

    delivers = True

    def __init__(
        self,
        url: str,
        *,
        management_url: str | None,
        connection_name: str,
        publish_timeout_seconds: float,
        deliver_timeout_seconds: float | None = None,
        tls: TlsSettings = NO_FILES,
    ) -> None:
        parts = urlsplit(url)
        trust = rabbit_context(url, tls)
        self._vhost, self._user = unquote(parts.path[1:]) or "/", unquote(parts.username or "guest")
        self._management = Management(management_url, vhost=self._vhost, user=self._user, tls=tls)
        self._publish_timeout = publish_timeout_seconds
        self._publishing = Line(url, f"{connection_name} publish", trust)
        self._consuming = Line(url, f"{connection_name} consume", trust)
        self._deliverer = QueueDeliverer(
            Line(url, f"{connection_name} deliver", trust), deliver_timeout_seconds or publish_timeout_seconds
        )

    @property
    def inspection(self) -> RabbitInspection:
        return RabbitInspection(self._publishing, self._management, vhost=self._vhost, user=self._user)

    async def setup(self, queues: tuple[str, ...]) -> None:
        try:
            await self._management.prepare(queues)
        except Unmanageable as error:
            # A user who may not set policies can still start if an operator has set them.
            await self._present(queues)
            log.warning("policies not set, but all queues are there", error=str(error))
            return
        async with self._channel("setup", SETUP_SECONDS) as channel:
            for name in queues:
                await channel.declare_queue(name, durable=True, arguments=QUORUM)

    async def verify(self, queues: tuple[str, ...]) -> None:
        await self._present(queues)
        try:
            await self._management.check(queues)
        except Unmanageable as error:
            log.warning("policies not checked", error=str(error))

    async def publish(self, queue: str, body: bytes) -> None:
        message = aio_pika.Message(
            body,
            message_id=uuid4().hex,
            headers={PUBLISHED: published_now()},
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        async with self._publishing.ask(f"publish to {queue}", self._publish_timeout) as link:
            channel = await link.publisher()
            await channel.default_exchange.publish(message, queue, mandatory=True)

    async def deliver(self, messages: Sequence[QueueMessage]) -> list[DeliveryError | None]:
        return await self._deliverer.deliver(messages)

    def subscribe(self, queue: str, *, name: str, prefetch: int) -> RabbitSubscription:
        return RabbitSubscription(self._consuming, queue, name, prefetch)

    async def depth(self, queue: str) -> int:
        async with self._channel(f"depth of {queue}") as channel:
            declared = await channel.declare_queue(queue, passive=True)
            return declared.declaration_result.message_count or 0

    async def list_queues(self) -> list[QueueState]:
        return await self._management.list_queues()

    async def purge(self, queue: str) -> None:
        async with self._channel(f"purge {queue}") as channel:
            await (await channel.get_queue(queue, ensure=False)).purge()

    async def ping(self) -> None:
        async with self._channel("ping"):
            pass

    async def close(self) -> None:
        await asyncio.gather(self._publishing.close(), self._consuming.close(), self._deliverer.close())

    async def _present(self, queues: tuple[str, ...]) -> None:
        async with self._channel("verify", SETUP_SECONDS) as channel:
            for name in queues:
                await channel.declare_queue(name, passive=True)

    @asynccontextmanager
    async def _channel(self, what: str, seconds: float = ANSWER_SECONDS) -> AsyncIterator[AbstractChannel]:
        """A channel for one question, because asking for a missing queue closes its channel."""
        async with (
            self._publishing.ask(what, seconds) as link,
            link.connection.channel(publisher_confirms=False) as channel,
        ):
            yield channel
