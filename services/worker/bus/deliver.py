"""The stages behind `bus.deliver` and `bus.slow`: they take a wake-up and work on its queue (`queue_run.py`).

Slow or failing receivers have a stage with places of its own, so that they delay no others. Receivers that become slow
delay only their own namespace, which has at most three quarters of a stage.

A run that loses its wake-up drops the message. After an internal error the wake-up comes due again, later each time. If
the store is away, it is put back to come due soon; if that fails too, its lease ends, and the clock hands it over
again.
"""

import asyncio
import random
from contextlib import suppress
from datetime import timedelta
from typing import ClassVar

import structlog
from cachetools import TTLCache
from msgspec import Struct

from services.worker.bus.grouped import GroupedStore
from services.worker.bus.held_queue import MOMENT_SECONDS, RunTools
from services.worker.bus.queue_run import QueueRun
from services.worker.consumer import Stage
from shared.bus.receivers import Receivers
from shared.bus.replays import Replaying
from shared.bus.rules.health import Care
from shared.bus.rules.wake_ups import DeliverQueue, DeliverSlowly, RunReplay
from shared.bus.store_wake_ups import HandedWakeUp
from shared.bus.subscriptions import Subscribing
from shared.bus.waking import Waker
from shared.core.errors import Unavailable
from shared.drivers.http import Outgoing
from shared.drivers.secrets import KeyRing
from shared.runtime.fair_budget import FairBudget
from shared.runtime.faults import fault
from shared.runtime.loops import Backoff, next_delay
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)
_SETTLING_SECONDS = 10.0
_MOST_MOVING = 10_000
_SOON = timedelta(seconds=2)
_AFTER_FAULTS = Backoff(first_seconds=2, cap_seconds=300)


class DeliveringTools(Struct, frozen=True, kw_only=True):
    """The dependencies of both stages. A call takes `call_seconds` at most. The clock claims wake-ups and ended leases
    `ahead` seconds early."""

    store: Store
    time: DatabaseTime
    waker: Waker
    outgoing: Outgoing
    ring: KeyRing
    subscribing: Subscribing
    care: Care
    call_seconds: float
    ahead: float
    budget: FairBudget


class DeliverQueues(Stage[DeliverQueue]):
    """Delivers from queues whose receivers are well."""

    task = DeliverQueue
    for_slow: ClassVar[bool] = False

    def __init__(self, tools: DeliveringTools, *, in_flight: int) -> None:
        self.in_flight = in_flight
        self._store = tools.store
        self._time = tools.time
        self._is_stopping = False
        lease = tools.call_seconds + _SETTLING_SECONDS
        self._tools = RunTools(
            store=GroupedStore(tools.store, tools.time, tools.waker, lease=timedelta(seconds=lease + tools.ahead)),
            receivers=Receivers(tools.outgoing, tools.ring, tools.time),
            subscribing=tools.subscribing,
            time=tools.time,
            care=tools.care,
            runs=FairBudget(in_flight),
            moving=TTLCache(_MOST_MOVING, ttl=MOMENT_SECONDS),
            places=FairBudget(in_flight),
            budget=tools.budget,
            for_slow=self.for_slow,
            lease_seconds=lease,
            call_seconds=tools.call_seconds,
            is_stopping=lambda: self._is_stopping,
        )

    async def run(self, task: DeliverQueue) -> None:
        """Work on the queue if its wake-up can still be taken. Raises `Unavailable` if the wake-up cannot be put
        back."""
        await self._time.now()
        asked_at = asyncio.get_running_loop().time()
        taken = await self._tools.store.take((task.wake_up_id, task.token))
        if taken is None:
            return
        await fault("deliver.after_take")
        try:
            await QueueRun(taken, self._tools, taken_at=asked_at).run()
        except Unavailable as error:
            log.warning("a queue waits for the store", queue=taken.queue, reason=str(error))
            handed = HandedWakeUp(taken.id, taken.token, taken.of.slow)
            with suppress(Unavailable):
                await self._store.bus_wake_ups.put_back([handed], self._time.reckon() + _SOON)
        except Exception:
            log.exception("a queue cannot be worked on", queue=taken.queue)
            # An internal error is no death of a worker: it says nothing about the receiver.
            pause = next_delay(_AFTER_FAULTS, taken.of.faults + 1, random.random())
            with suppress(Unavailable):
                await self._store.bus_wake_ups.put_off(taken, self._time.reckon() + timedelta(seconds=pause))

    async def put_off(self, task: DeliverQueue) -> None:
        """Drop the message: when the lease ends, the wake-up is handed over again."""

    async def give_up(self, task: DeliverQueue, reason: str) -> None:
        """Leave the wake-up to its lease: after repeated failures the subscription is suspended."""
        log.error("a queue cannot be worked on", task=repr(task), reason=reason)

    def stop(self) -> None:
        self._is_stopping = True

    async def close(self) -> None:
        await self._tools.store.close()


class DeliverSlowQueues(DeliverQueues):
    """The same for slow or failing receivers."""

    task = DeliverSlowly
    for_slow: ClassVar[bool] = True


class ReplayRunner(Stage[RunReplay]):
    task = RunReplay
    in_flight = 2

    def __init__(self, replaying: Replaying) -> None:
        self._replaying = replaying
        self._stopping = asyncio.Event()

    async def run(self, task: RunReplay) -> None:
        await self._replaying.run(task.replay_id, self._stopping)

    async def put_off(self, task: RunReplay) -> None:
        """Leave it to upkeep, which finds replays without a worker."""

    async def give_up(self, task: RunReplay, reason: str) -> None:
        await self._replaying.give_up(task.replay_id, reason)

    def stop(self) -> None:
        self._stopping.set()
