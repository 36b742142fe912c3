"""A queue whose wake-up is in hand: its lease, its cursor and its subscription.

The process limits the bytes of the events that it holds for all queues together.
"""

import asyncio
from collections.abc import Callable, MutableMapping
from datetime import datetime

import structlog
from msgspec import Struct
from msgspec.structs import replace

from services.worker.bus.grouped import GroupedStore, QueueReading
from shared.bus.receivers import Receivers
from shared.bus.rules.deliveries import CallResult, Cursor, SettledDelivery
from shared.bus.rules.health import Care
from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.rules.wake_ups import Rest, TakenWakeUp
from shared.bus.subscriptions import Subscribing
from shared.runtime.fair_budget import FairBudget
from shared.runtime.metrics import (
    BUS_DELIVERED_EVENTS,
    BUS_DELIVERIES,
    BUS_DELIVERY_SECONDS,
    BUS_EVENTS_SETTLED,
    BUS_LATENCY,
    BoundedLabels,
)
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)
_label = BoundedLabels()


def count_throttled(subscription: EventSubscription) -> None:
    """Count a receiver that was not called because it is paused."""
    BUS_DELIVERIES.labels(_label(subscription.id), "throttled").inc()


def count_call(subscription: EventSubscription, settled: SettledDelivery, result: CallResult) -> None:
    label, outcome, delivery = _label(subscription.id), "success" if result.is_success else "failure", settled.before
    BUS_DELIVERIES.labels(label, outcome).inc()
    BUS_DELIVERED_EVENTS.labels(label, outcome).inc(delivery.count)
    BUS_DELIVERY_SECONDS.labels(outcome).observe(result.attempt.ms / 1_000)
    waited = (result.attempt.at - delivery.first_at).total_seconds()
    if not delivery.made:
        BUS_LATENCY.labels("first").observe(waited)
    if result.is_success:
        BUS_LATENCY.labels("last").observe(waited)
    count_settled(subscription, settled)


def count_settled(subscription: EventSubscription, settled: SettledDelivery) -> None:
    if settled.after.settled_at is not None:
        BUS_EVENTS_SETTLED.labels(_label(subscription.id), settled.after.status.value).inc(settled.before.count)


BYTES_IN_HAND = 64 * 2**20
"""The bytes of events that all runs of a process hold together, from reading chunks or open deliveries until these are
settled. Each exists a few times for moments: as a document, as a body, and in the transaction that cuts it. A single
cut may exceed this."""


class ByteShare:
    """The bytes that one run holds of a budget, for its namespace."""

    def __init__(self, budget: FairBudget) -> None:
        self._budget = budget
        self._namespace = ""
        self._size = 0

    def can_take(self, namespace: str, size: int) -> bool:
        """Whether it may ask for more. A run that holds some must not wait, or two could wait for each other."""
        return self._size == 0 or self._budget.has_room(namespace, size)

    async def take(self, namespace: str, size: int) -> None:
        """Wait until there is room, and take it."""
        await self._budget.take(namespace, size)
        self._namespace = namespace
        self._size += size

    def give_back(self) -> None:
        if self._size:
            self._budget.give_back(self._namespace, self._size)
            self._size = 0


SECONDS_AT_A_TIME = 10.0
RENEW_SECONDS = 3.0
MOMENT_SECONDS = 1.0
"""How long a queue in hand waits for its namespace's share of the stage while other queues of it finish."""
_SLOW_MS = 1_000


class WakeUpLost(Exception):
    """Another worker has the wake-up."""


class RunTools(Struct, frozen=True):
    """The dependencies that runs of a stage share. A namespace has up to three quarters of each budget: `runs` for
    queues in hand, `places` for calls, `budget` for bytes. `moving` contains the namespaces whose queues come and go.
    `for_slow`: the stage of slow receivers."""

    store: GroupedStore
    receivers: Receivers
    subscribing: Subscribing
    time: DatabaseTime
    care: Care
    runs: FairBudget
    moving: MutableMapping[str, bool]
    places: FairBudget
    budget: FairBudget
    for_slow: bool
    lease_seconds: float
    call_seconds: float
    is_stopping: Callable[[], bool]


class HeldQueue:
    """A queue in hand. `taken_at` is when its wake-up was requested, by the loop's clock."""

    def __init__(self, taken: TakenWakeUp, tools: RunTools, *, taken_at: float) -> None:
        self.taken = taken
        self.tools = tools
        self.cursor = Cursor(id=taken.queue)
        self.subscription: EventSubscription | None = None
        self.share = ByteShare(tools.budget)
        self._leased_from = taken_at
        self._began = taken_at

    @property
    def queue(self) -> str:
        return self.taken.queue

    @property
    def active(self) -> EventSubscription:
        """Its subscription, after `read`."""
        assert self.subscription is not None, "read first"
        return self.subscription

    @property
    def is_active(self) -> bool:
        """Whether its receiver may be called at all."""
        return self.subscription is not None and self.subscription.is_called

    @property
    def is_well(self) -> bool:
        """Whether its receiver may be called and answers."""
        return self.is_active and not self.cursor.health.is_failing

    @property
    def is_out_of_time(self) -> bool:
        """Whether other queues have their turn now, or the process stops."""
        return _now() - self._began >= SECONDS_AT_A_TIME or self.tools.is_stopping()

    @property
    def is_leased(self) -> bool:
        """Whether no other worker can have it yet."""
        return _now() < self._leased_from + self.tools.lease_seconds

    @property
    def may_call(self) -> bool:
        """Whether a call that begins now ends within the lease."""
        return _now() + self.tools.call_seconds < self._leased_from + self.tools.lease_seconds

    async def read(self) -> bool:
        """Read subscription and cursor; returns whether the receiver may be called."""
        reading = await self.tools.store.read_queue(self.queue)
        self.subscription = reading.subscription
        if reading.cursor is None or not self.is_active:
            return False
        self.cursor = reading.cursor
        return True

    async def read_after_move(self) -> None:
        """Read again after the cursor has moved: by another worker, or by this one with a lost answer. Raises
        `WakeUpLost`."""
        await self.renew()
        reading = await self._read_all()
        if reading.cursor is None:
            raise WakeUpLost
        self.cursor = reading.cursor

    async def keep(self) -> None:
        """Renew the lease if it is old, and read whether the receiver may still be called. Raises `WakeUpLost`."""
        if _now() - self._leased_from >= RENEW_SECONDS:
            await self.renew()
            await self._read_all()

    async def renew(self) -> None:
        """Raises `WakeUpLost`."""
        now = _now()
        if not await self.tools.store.renew(self.taken):
            raise WakeUpLost
        self._leased_from = now

    def can_hold_bytes(self, size: int) -> bool:
        return self.share.can_take(self.active.namespace, size)

    async def hold_bytes(self, size: int) -> None:
        """Wait until the process may hold `size` more bytes. Raises `WakeUpLost`."""
        waiting = asyncio.create_task(self.share.take(self.active.namespace, size))
        try:
            while not (await asyncio.wait([waiting], timeout=RENEW_SECONDS))[0]:
                await self.keep()
        finally:
            waiting.cancel()

    async def rest(self, left: int, fires_at: datetime, not_before: datetime | None = None) -> bool:
        """Release the wake-up until `fires_at`; returns whether to look again."""
        rest = Rest(taken=self.taken, left=left, fires_at=fires_at, not_before=not_before, slow=self._is_slow)
        woken = await self.tools.store.rest(rest)
        if woken is not None:
            self.taken = woken
        return woken is not None

    async def rest_until(self, moment: datetime) -> bool:
        """Pause the receiver until then; returns whether to look again."""
        return await self.rest(self.taken.of.waiting, moment, not_before=moment)

    async def hand_on(self, *, to_slow: bool = False) -> None:
        """Hand the wake-up to another worker, in the slow stage if `to_slow`."""
        of = replace(self.taken.of, slow=to_slow or self._is_slow)
        await self.tools.store.hand_on(replace(self.taken, of=of))

    async def suspend(self, reason: str, callback: str = "") -> None:
        """Suspend the subscription, unless its callback is no longer `callback`."""
        suspended = await self.tools.subscribing.suspend(self.queue, reason, callback=callback)
        if suspended is not None:
            log.warning("a subscription is suspended", queue=self.queue, reason=reason)
            self.subscription = suspended

    @property
    def _is_slow(self) -> bool:
        return self.cursor.mean_ms > _SLOW_MS or self.cursor.health.is_failing

    async def _read_all(self) -> QueueReading:
        reading = await self.tools.store.read_queue(self.queue)
        if reading.subscription is None:
            raise WakeUpLost
        self.subscription = reading.subscription
        return reading


def _now() -> float:
    return asyncio.get_running_loop().time()
