"""The worker as one component: its consumers start when the servers are ready, and stop together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from services.worker.consumer import Consumer, Stage
from shared.core.errors import Unavailable
from shared.drivers.rabbitmq import Broker
from shared.runtime.lifecycle import Background
from shared.runtime.loops import Backoff, Outage

log = structlog.get_logger(__name__)

_BACKOFF = Backoff(first_seconds=0.2, cap_seconds=5)


class Workers(Background):
    """Consumers that take nothing before `verify` has passed: nothing must be sent by servers that `carillon init` has
    not set up, or that lack the guarantees for exactly-once."""

    def __init__(
        self, broker: Broker, stages: Sequence[Stage[Any]], *, name: str, verify: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__("worker", self._work)
        self._stages = stages
        self._consumers = [Consumer(broker, stage, name=name) for stage in stages]
        self._verify = verify
        self._is_verified = False

    async def check(self) -> None:
        """Raise `Unavailable` for `/readyz` until `verify` has passed."""
        if not self._is_verified:
            raise Unavailable("the worker waits until RabbitMQ and Kafka are as `carillon init` makes them")

    async def stop(self) -> None:
        for stage in self._stages:
            stage.stop()
        await super().stop()

    async def _work(self, stopping: asyncio.Event) -> None:
        await self._wait_for_servers(stopping)
        async with asyncio.TaskGroup() as group:
            for consumer in self._consumers:
                group.create_task(consumer.run(stopping))
        await asyncio.gather(*(stage.close() for stage in self._stages))

    async def _wait_for_servers(self, stopping: asyncio.Event) -> None:
        outage = Outage("worker waits for its servers", stopping, _BACKOFF)
        while not stopping.is_set():
            try:
                await self._verify()
            except Unavailable as error:
                await outage.wait(error)
            else:
                self._is_verified = True
                return
