"""The stages of a worker, each the work on one kind of task; the consumers, the only code that takes and acknowledges
messages; and the worker, which starts and stops them together.

A message is acknowledged when its work is done and stored.
"""

import asyncio
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

import structlog
from msgspec import Struct

from shared.core import tasks
from shared.core.errors import LaneLost, Poisoned, Unavailable
from shared.core.tasks import RetriedTask, Task, facts_of, name_of
from shared.drivers.rabbitmq import Broker, Delivery
from shared.runtime import readings
from shared.runtime.lifecycle import Background
from shared.runtime.loops import Backoff, Outage, next_delay, pause
from shared.runtime.metrics import TASK_SECONDS, TASK_WAIT_SECONDS, TASKS, TASKS_IN_HAND
from shared.runtime.tracing import follow

log = structlog.get_logger(__name__)
AnyTask = TypeVar("AnyTask", bound=Task)


class Stage(ABC, Generic[AnyTask]):
    """The work on the tasks of the kind `task`, `in_flight` of them at a time in one process."""

    task: ClassVar[type[Any]]
    in_flight: int

    @abstractmethod
    async def run(self, task: AnyTask) -> None:
        """Do the task. After `Unavailable` or `LaneLost` it is done again."""

    async def run_again(self, task: AnyTask) -> None:
        """Do a task that the broker delivers again: its worker is dead, or has lost its connection."""
        await self.run(task)

    @abstractmethod
    async def put_off(self, task: AnyTask) -> None:
        """Let the work come back later as this task, which counts the tries."""

    @abstractmethod
    async def give_up(self, task: AnyTask, reason: str) -> None:
        """End the work of this task after repeated internal errors."""

    def stop(self) -> None:
        """End long work soon, because the process stops."""

    async def close(self) -> None:
        """Release the resources of the stage, after its last task."""


class Patience(Struct, frozen=True):
    """The tries of a stage for one message, and the pauses between them; then the message is answered."""

    attempts: int
    backoff: Backoff


# Counted from the first failure. The pauses of `AWAY` allow about five tries within it if each fails quickly.
IN_PLACE_SECONDS = 2.0
# About four minutes: far less than RabbitMQ's consumer time-out of 30.
AWAY = Patience(20, Backoff(first_seconds=0.1, cap_seconds=15))
FAULTS = 3


class Consumer:
    """The consumer of one stage's queue: `stage.in_flight` tasks at a time, over all of its subscriptions."""

    def __init__(self, broker: Broker, stage: Stage[Any], *, name: str) -> None:
        self._broker = broker
        self._queue = stage.task.queue
        self._stage = stage
        self._name = f"{name} {self._queue}"
        self._slots = asyncio.Semaphore(stage.in_flight)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Take messages until `stopping` is set, then finish those in hand; if cancelled, these go back to the
        broker."""
        outage = Outage("consumer waits for the broker", stopping, AWAY.backoff, queue=self._queue)
        try:
            while not stopping.is_set():
                try:
                    await self._consume(stopping)
                    outage.end()
                except Unavailable as error:
                    await outage.wait(error)
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            for task in self._tasks:
                task.cancel()

    async def _consume(self, stopping: asyncio.Event) -> None:
        async with self._broker.subscribe(self._queue, name=self._name, prefetch=self._stage.in_flight) as subscription:
            log.info("consuming", queue=self._queue)
            ender = asyncio.create_task(_stop_when_told(stopping, subscription.stop))
            try:
                async for delivery in subscription:
                    await self._slots.acquire()
                    self._spawn(delivery, stopping)
            finally:
                ender.cancel()
            # The answers need the subscription. If it is gone, tasks in hand end by themselves.
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, delivery: Delivery, stopping: asyncio.Event) -> None:
        task = asyncio.create_task(self._answer(delivery, stopping))
        self._tasks.add(task)
        task.add_done_callback(self._release_slot)

    def _release_slot(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("message left unanswered", queue=self._queue, exc_info=error)

    async def _answer(self, delivery: Delivery, stopping: asyncio.Event) -> None:
        started = time.monotonic()
        if delivery.waited_seconds is not None:
            TASK_WAIT_SECONDS.labels(self._queue).observe(delivery.waited_seconds)
        with TASKS_IN_HAND.labels(self._queue).track_inprogress():
            if (task := self._read(delivery.body)) is None:
                answer = MessageAnswer.DROPPED
            else:
                with follow(name_of(task), task.trace, **facts_of(task)) as span:
                    answer = await self._work_off(task, stopping, redelivered=delivery.redelivered)
                    span.set(outcome=answer)
        TASK_SECONDS.labels(self._queue).observe(time.monotonic() - started)
        TASKS.labels(self._queue, answer).inc()
        with suppress(Unavailable):
            await answer.give(delivery)

    def _read(self, body: bytes) -> Task | None:
        """The task of a message; `None` if it cannot be read."""
        try:
            task: Task = tasks.decode(body, self._stage.task)
        except Poisoned as error:
            log.error("poisoned message", queue=self._queue, reason=str(error), body=body[:200])
            return None
        return task

    async def _work_off(self, task: Task, stopping: asyncio.Event, *, redelivered: bool) -> "MessageAnswer":
        """Try the task until there is an answer to its message."""
        in_place_until, work = math.inf, self._stage.run_again if redelivered else self._stage.run
        for failures in range(1, AWAY.attempts + 1):
            failure = await self._try(work, task)
            if failure is None:
                return MessageAnswer.DONE
            if stopping.is_set():
                break
            in_place_until = min(in_place_until, time.monotonic() + IN_PLACE_SECONDS)
            match failure:
                case Unavailable() | LaneLost():
                    in_place = time.monotonic() < in_place_until
                    if not in_place and await self._put_off(tasks.next_try(task, fault=False)):
                        return MessageAnswer.PUT_OFF
                case _ if _is_last(task):
                    await self._give_up(task, failure)
                    return MessageAnswer.DROPPED
                case _:
                    # Counted even if it cannot be put off, so that repeated internal errors end the work.
                    task = tasks.next_try(task, fault=True)
                    if await self._put_off(task):
                        return MessageAnswer.PUT_OFF
            await pause(stopping, next_delay(AWAY.backoff, failures, random.random()))
            if stopping.is_set():
                break
        return MessageAnswer.REQUEUED

    async def _try(self, work: Callable[[Task], Awaitable[None]], task: Task) -> Exception | None:
        try:
            with readings.hold(self._queue, task.about):
                await work(task)
        except (Unavailable, LaneLost) as error:
            log.warning("task waits", task=repr(task), reason=str(error))
            return error
        except Exception as error:
            log.exception("task failed", task=repr(task))
            return error
        return None

    async def _put_off(self, task: Task) -> bool:
        """Whether the work comes back without this message."""
        try:
            await self._stage.put_off(task)
        except Unavailable as error:
            log.warning("task cannot be put off", task=repr(task), reason=str(error))
            return False
        except Exception:
            log.exception("task cannot be put off", task=repr(task))
            return False
        log.info("task put off", task=repr(task))
        return True

    async def _give_up(self, task: Task, error: Exception) -> None:
        try:
            await self._stage.give_up(task, f"{type(error).__name__}: {error}")
        except Exception:
            log.exception("work cannot be ended", task=repr(task))


class MessageAnswer(StrEnum):
    """The answer to the broker about a message."""

    DONE = "done"
    PUT_OFF = "put_off"
    REQUEUED = "requeued"
    DROPPED = "dropped"

    async def give(self, delivery: Delivery) -> None:
        """After `Unavailable` the broker delivers the message again."""
        match self:
            case MessageAnswer.DONE | MessageAnswer.PUT_OFF | MessageAnswer.DROPPED:
                await delivery.ack()
            case MessageAnswer.REQUEUED:
                await delivery.requeue()


def _is_last(task: Task) -> bool:
    """Whether this internal error ends the work. A task that counts its tries elsewhere has only one here: a call is
    handed out again by its lease."""
    return not isinstance(task, RetriedTask) or task.faults + 1 >= FAULTS


async def _stop_when_told(stopping: asyncio.Event, stop: Callable[[], Awaitable[None]]) -> None:
    await stopping.wait()
    await stop()


_VERIFYING = Backoff(first_seconds=0.2, cap_seconds=5)


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
        outage = Outage("worker waits for its servers", stopping, _VERIFYING)
        while not stopping.is_set():
            try:
                await self._verify()
            except Unavailable as error:
                await outage.wait(error)
            else:
                self._is_verified = True
                return
