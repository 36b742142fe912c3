"""The one place that takes, acknowledges and rejects messages.

A message is acknowledged when its stage returns, and kept while what the stage needs is away: then the stage runs
again from its beginning, after a growing pause. It goes to the dead letters when nobody can read it, or when the
stage fails again and again by a fault of ours; the stage is told first, so that the work comes to an end too. Nothing
is ever requeued because somebody else was faster.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import structlog
from msgspec import Struct

from shared.broker import Broker, Delivery
from shared.domain import tasks
from shared.domain.errors import LaneLost, Poisoned, Unavailable
from shared.domain.tasks import Task
from shared.runtime.metrics import TASK_SECONDS, TASKS, TASKS_IN_HAND
from shared.runtime.retries import Backoff, next_delay

log = structlog.get_logger(__name__)


class Stage(Protocol):
    """What is done with one kind of task."""

    async def __call__(self, task: Task) -> None:
        """Do it. Raises `Unavailable` and `LaneLost` when it must be done again."""

    async def give_up(self, task: Task, reason: str) -> None:
        """End the work that the task stands for: it fails by a fault of ours, whoever tries."""


class Patience(Struct, frozen=True):
    """How often a stage is tried again for one message, and with which pauses; then the message gets its answer."""

    attempts: int
    backoff: Backoff


# Some four minutes: far less than RabbitMQ's consumer time-out of 30.
AWAY = Patience(20, Backoff(first_seconds=0.1, cap_seconds=15))
FAULTY = Patience(3, Backoff(first_seconds=0.5, factor=4, cap_seconds=10))


class Consumer:
    """One queue's consumer: up to `in_flight` tasks at a time, over all of its subscriptions."""

    def __init__(self, broker: Broker, queue: str, stage: Stage, *, name: str, in_flight: int) -> None:
        self._broker = broker
        self._queue = queue
        self._stage = stage
        self._name = f"{name} {queue}"
        self._in_flight = in_flight
        self._slots = asyncio.Semaphore(in_flight)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Take messages until it is time to stop, then finish those in hand; cancelled, these go back to the broker."""
        failures = 0
        try:
            while not stopping.is_set():
                try:
                    await self._subscribed(stopping)
                except Unavailable as error:
                    failures += 1
                    log.warning("consumer waits for the broker", queue=self._queue, reason=str(error))
                    await _pause(AWAY, failures, stopping)
                else:
                    failures = 0
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            for task in self._tasks:
                task.cancel()

    async def _subscribed(self, stopping: asyncio.Event) -> None:
        async with self._broker.subscribe(self._queue, name=self._name, prefetch=self._in_flight) as subscription:
            log.info("consuming", queue=self._queue)
            ender = asyncio.create_task(_stop_when_told(stopping, subscription.stop))
            try:
                async for delivery in subscription:
                    await self._slots.acquire()
                    self._spawn(delivery, stopping)
            finally:
                ender.cancel()
            # Told to stop: the answers need the subscription. When that is gone, tasks in hand end by themselves.
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, delivery: Delivery, stopping: asyncio.Event) -> None:
        task = asyncio.create_task(self._answer(delivery, stopping))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("message left unanswered", queue=self._queue, exc_info=error)

    async def _answer(self, delivery: Delivery, stopping: asyncio.Event) -> None:
        started = time.monotonic()
        with TASKS_IN_HAND.labels(self._queue).track_inprogress():
            try:
                task = tasks.decode(delivery.body)
            except Poisoned as error:
                log.error("poisoned message", queue=self._queue, reason=str(error), body=delivery.body[:200])
                await self._end(delivery.reject, "dead")
                return
            await self._attempts(task, delivery, stopping)
        TASK_SECONDS.labels(self._queue).observe(time.monotonic() - started)

    async def _attempts(self, task: Task, delivery: Delivery, stopping: asyncio.Event) -> None:
        away = faults = 0
        while True:
            try:
                await self._stage(task)
            except (Unavailable, LaneLost) as error:
                away += 1
                patience, attempt = AWAY, away
                log.warning("task waits", task=repr(task), attempt=away, reason=str(error))
            except Exception as error:
                faults += 1
                patience, attempt = FAULTY, faults
                log.exception("task failed", task=repr(task), attempt=faults)
                if faults >= FAULTY.attempts:
                    await self._give_up(task, delivery, error)
                    return
            else:
                await self._end(delivery.ack, "done")
                return
            await _pause(patience, attempt, stopping)
            if stopping.is_set() or away >= AWAY.attempts:
                await self._end(delivery.requeue, "requeued")
                return

    async def _give_up(self, task: Task, delivery: Delivery, error: Exception) -> None:
        try:
            await self._stage.give_up(task, f"{type(error).__name__}: {error}")
        except Exception:
            log.exception("work cannot be ended", task=repr(task))
        await self._end(delivery.reject, "dead")

    async def _end(self, answer: Callable[[], Awaitable[None]], outcome: str) -> None:
        TASKS.labels(self._queue, outcome).inc()
        with suppress(Unavailable):
            await answer()


async def _stop_when_told(stopping: asyncio.Event, stop: Callable[[], Awaitable[None]]) -> None:
    await stopping.wait()
    await stop()


async def _pause(patience: Patience, attempt: int, stopping: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(next_delay(patience.backoff, attempt, random.random())):
            await stopping.wait()
