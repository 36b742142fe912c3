"""The one place that takes, acknowledges and rejects messages.

A message is acknowledged when its stage returns, rejected to the dead letters when nobody can read it, and kept while
what the stage needs is away: then the stage runs again from its beginning, after a growing pause. What a stage gives
up on is acknowledged too: the documents tell upkeep what is left to do. Nothing is ever requeued because somebody
else was faster.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
from msgspec import Struct

from shared.broker import Broker, Delivery
from shared.domain import tasks
from shared.domain.errors import LaneLost, Poisoned, Unavailable
from shared.domain.tasks import Task
from shared.runtime.metrics import TASKS, TASKS_IN_HAND
from shared.runtime.retries import Backoff, next_delay

log = structlog.get_logger(__name__)

Stage = Callable[[Task], Awaitable[None]]


class Patience(Struct, frozen=True):
    """How often a stage is tried again for one message, and with which pauses; then the message gets its answer."""

    attempts: int
    backoff: Backoff


# Some four minutes: far less than RabbitMQ's consumer time-out of 30.
AWAY = Patience(20, Backoff(first_seconds=0.1, cap_seconds=15))
FAULTY = Patience(3, Backoff(first_seconds=0.5, factor=4, cap_seconds=10))


class Consumer:
    """One queue's consumer: up to `in_flight` tasks at a time. A component: start, stop (drains), failed."""

    def __init__(self, broker: Broker, queue: str, stage: Stage, *, name: str, in_flight: int) -> None:
        self._broker = broker
        self._queue = queue
        self._stage = stage
        self.name = f"{name} {queue}"
        self._in_flight = in_flight
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to take messages."""
        self._loop = asyncio.create_task(self._run(), name=self.name)

    async def stop(self) -> None:
        """Take no more and wait for what is in hand; cancelled, what is in hand goes back to the broker."""
        self._stopping.set()
        if self._loop is not None:
            await self._loop

    async def wait(self) -> None:
        """Return when the consumer has stopped; raise what ended it."""
        if self._loop is not None:
            await asyncio.shield(self._loop)

    async def _run(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            try:
                await self._subscribed()
                attempt = 0
            except Unavailable as error:
                attempt += 1
                log.warning("consumer waits for the broker", queue=self._queue, reason=str(error))
                await self._pause(AWAY, attempt)

    async def _subscribed(self) -> None:
        async with self._broker.subscribe(self._queue, name=self.name, prefetch=self._in_flight) as subscription:
            log.info("consuming", queue=self._queue)
            ender = asyncio.create_task(self._stop_when_told(subscription.stop))
            try:
                async for delivery in subscription:
                    task = asyncio.create_task(self._answer(delivery))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            finally:
                ender.cancel()
                await self._drained()

    async def _stop_when_told(self, stop: Callable[[], Awaitable[None]]) -> None:
        await self._stopping.wait()
        await stop()

    async def _drained(self) -> None:
        tasks_in_hand = list(self._tasks)
        try:
            await asyncio.gather(*tasks_in_hand)
        except asyncio.CancelledError:
            for task in tasks_in_hand:
                task.cancel()
            await asyncio.gather(*tasks_in_hand, return_exceptions=True)
            raise

    async def _answer(self, delivery: Delivery) -> None:
        with TASKS_IN_HAND.labels(self._queue).track_inprogress():
            try:
                task = tasks.decode(delivery.body)
            except Poisoned as error:
                log.error("poisoned message", queue=self._queue, reason=str(error), body=delivery.body[:200])
                await self._end(delivery.reject, "dead")
                return
            await self._attempts(task, delivery)

    async def _attempts(self, task: Task, delivery: Delivery) -> None:
        away = faults = 0
        while True:
            try:
                await self._stage(task)
                await self._end(delivery.ack, "done")
                return
            except (Unavailable, LaneLost) as error:
                away += 1
                patience, attempt = AWAY, away
                log.warning("task waits", task=repr(task), attempt=away, reason=str(error))
            except Exception:
                faults += 1
                patience, attempt = FAULTY, faults
                log.exception("task failed", task=repr(task), attempt=faults)
            if attempt >= patience.attempts:
                give_up, outcome = (delivery.requeue, "requeued") if patience is AWAY else (delivery.reject, "dead")
                await self._end(give_up, outcome)
                return
            await self._pause(patience, attempt)
            if self._stopping.is_set():
                await self._end(delivery.requeue, "requeued")
                return

    async def _end(self, answer: Callable[[], Awaitable[None]], outcome: str) -> None:
        TASKS.labels(self._queue, outcome).inc()
        with suppress(Unavailable):
            await answer()

    async def _pause(self, patience: Patience, attempt: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(next_delay(patience.backoff, attempt, random.random())):
                await self._stopping.wait()
