"""A process's servers: the real ones, and those of the model, each call of which is a step."""

import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Self, TypeVar, cast

from shared.clock.rules.callbacks import DeliveryError, QueueMessage
from shared.console.rules.processes import QueueState
from shared.drivers.rabbitmq import Broker, Delivery
from shared.drivers.rabbitmq.memory import MemoryBroker, MemoryDelivery
from tests.models.simulated.simulation import Process

T = TypeVar("T")


def gated(process: Process, real: T, name: str) -> T:
    """The capability, or a part of the store, as this process sees it."""
    return cast(T, _Gated(process, real, name.removeprefix("store.")))


class _Gated:
    def __init__(self, process: Process, real: object, name: str) -> None:
        self._process = process
        self._real = real
        self._name = name

    def __getattr__(self, verb: str) -> Any:
        value = getattr(self._real, verb)
        if inspect.isasyncgenfunction(value):
            return partial(self._stream, verb, value)
        if inspect.iscoroutinefunction(value):
            return partial(self._call, verb, value)
        return value

    async def _call(self, verb: str, method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        about = (*args, *(value for value in named.values() if value))
        return await self._process.take(f"{self._name}.{verb}", partial(method, *args, **named), *about)

    async def _stream(self, verb: str, method: Callable[..., Any], *args: Any, **named: Any) -> AsyncIterator[Any]:
        async def read() -> list[Any]:
            return [item async for item in method(*args, **named)]

        for item in await self._process.take(f"{self._name}.{verb}", read, *args):
            yield item


class GatedBroker:
    """The broker, which may lose a message. `published` are the last ones; `hear` is told what comes to somebody."""

    delivers = False

    def __init__(
        self, process: Process, broker: MemoryBroker, published: deque[tuple[str, bytes]], hear: Callable[[bytes], None]
    ) -> None:
        self._process = process
        self._broker = broker
        self._published = published
        self._hear = hear

    async def publish(self, queue: str, body: bytes) -> None:
        async def publish() -> None:
            if not self._process.strikes("purged"):
                await self._broker.publish(queue, body)
                self._published.append((queue, body))

        await self._process.take("publish", publish, body)

    async def depth(self, queue: str) -> int:
        depth: int = await self._process.take("depth", partial(self._broker.depth, queue), queue)
        return depth

    def subscribe(self, queue: str, *, name: str, prefetch: int) -> "_Subscription":
        return _Subscription(self._process, self._broker, queue, prefetch, self._hear)

    async def setup(self, queues: tuple[str, ...]) -> None:
        await self._broker.setup(queues)

    async def verify(self, queues: tuple[str, ...]) -> None:
        await self._broker.verify(queues)

    async def deliver(self, messages: Sequence[QueueMessage]) -> list[DeliveryError | None]:
        return await self._broker.deliver(messages)

    async def list_queues(self) -> list[QueueState]:
        return await self._broker.list_queues()

    async def purge(self, queue: str) -> None:
        await self._broker.purge(queue)

    async def ping(self) -> None:
        await self._broker.ping()

    async def close(self) -> None:
        """The process ends; the broker stays."""


class _Subscription:
    def __init__(
        self, process: Process, broker: MemoryBroker, queue: str, prefetch: int, hear: Callable[[bytes], None]
    ) -> None:
        self._process = process
        self._inner = broker.subscribe(queue, name=process.name, prefetch=prefetch)
        self._hear = hear

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        self._process.subscriptions.append(self._inner)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.subscriptions.remove(self._inner)
        self._inner.leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        inner = await self._inner.__anext__()

        async def deliver() -> None:
            self._hear(inner.body)

        await self._process.take("deliver", deliver, inner.body)
        return _Delivery(self._process, inner)

    async def stop(self) -> None:
        await self._inner.stop()


class _Delivery:
    def __init__(self, process: Process, inner: MemoryDelivery) -> None:
        self.body = inner.body
        self.redelivered = inner.redelivered
        self.waited_seconds = inner.waited_seconds
        self._process = process
        self._inner = inner

    async def ack(self) -> None:
        await self._process.take("ack", self._inner.ack, self.body)

    async def requeue(self) -> None:
        await self._process.take("requeue", self._inner.requeue, self.body)


def as_broker(gated_broker: GatedBroker) -> Broker:
    """It keeps the broker's promises as far as trouble lets it."""
    return gated_broker
