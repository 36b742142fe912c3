"""A worker of the bus on a real store, with a clock that hands over what comes due, and a real receiver."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial

import msgspec

from services.worker.bus.deliver import DeliveringTools, DeliverQueues, DeliverSlowQueues
from services.worker.bus.held_queue import BYTES_IN_HAND
from services.worker.consumer import Consumer
from shared.bus.rules.deliveries import Cursor, DeliveryChoice, EventDelivery
from shared.bus.rules.folding import EventChunk
from shared.bus.rules.health import Care
from shared.bus.rules.subscriptions import EventSubscription, SubscriptionWish
from shared.bus.rules.wake_ups import DELIVER_QUEUE, SLOW_QUEUE, Wake, queue_owner
from shared.bus.store_log import chunk_document
from shared.bus.subscriptions import Subscribing, SubscriptionQuotas
from shared.bus.waking import DueQueues, Waker
from shared.clock.rules.occurrences import SHARDS
from shared.clock.store_occurrences import Visible, fresh_token
from shared.core.instants import ms
from shared.drivers.http import Outgoing
from shared.drivers.http.client import HttpOutgoing
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.drivers.secrets import KeyRing
from shared.runtime.fair_budget import FairBudget
from shared.store import Store
from shared.time import DatabaseTime
from tests.bus.store.made_subscriptions import no_log
from tests.receivers import Receiver
from tests.waiting import until

NAMESPACE = "token:n"
CARE = Care(max_backoff=timedelta(seconds=2))
LEASE = timedelta(seconds=30)

_orders = itertools.count(1)


class Delivering:
    """What tests do with the bus, in one process."""

    def __init__(self, store: Store, time: DatabaseTime, waker: Waker, ring: KeyRing, receiver: Receiver) -> None:
        self.store = store
        self.time = time
        self.waker = waker
        self.ring = ring
        self.receiver = receiver
        self.budget = FairBudget(BYTES_IN_HAND)
        self.subscribing = Subscribing(store, ring, time.now, SubscriptionQuotas(1_000, 1_000), no_log)

    async def subscribe(self, key: str = "k", **fields: object) -> EventSubscription:
        """Subscribe to `/<key>` of the receiver, or change that."""
        wish = {"namespace": NAMESPACE, "callback": f"{self.receiver.url}/{key}", "timeout_ms": 0} | fields
        return (await self.subscribing.subscribe(SubscriptionWish(key=key, **wish))).subscription  # type: ignore[arg-type]

    async def publish(self, subscription: EventSubscription, *events: object, wake: bool = True) -> None:
        """Have the fan-out bring these events to one queue, as one chunk."""
        now, order = await self.time.now(), next(_orders)
        chunk = EventChunk(subscription.queue)
        for offset, event in enumerate(events):
            encoded = msgspec.json.encode(event)
            chunk.events.append(encoded)
            chunk.arrivals.append(ms(now))
            chunk.offsets.append(("0", order * 1_000 + offset))
            chunk.size += len(encoded)
        await self.store._database["bus_chunks"].insert_one(chunk_document(chunk, order, 0))
        if wake:
            await self.waker.wake([Wake(subscription.queue, now + subscription.timeout, len(events))])

    async def cursor(self, subscription: EventSubscription) -> Cursor:
        return (await self.store.bus_cursors.read([subscription.queue]))[subscription.queue]

    async def deliveries(self, subscription: EventSubscription) -> list[EventDelivery]:
        return await self.store.bus_deliveries.page(subscription.queue, DeliveryChoice(), limit=1_000)

    async def sent(self, subscription: EventSubscription, count: int) -> Cursor:
        """Wait until so many events are delivered."""
        return await self.cursor_when(subscription, lambda cursor: cursor.sent >= count)

    async def cursor_when(self, subscription: EventSubscription, holds: Callable[[Cursor], bool]) -> Cursor:
        """Wait until this holds of its cursor."""

        async def find() -> Cursor | None:
            cursor = await self.cursor(subscription)
            return cursor if holds(cursor) else None

        found: Cursor = await until(find)
        return found

    async def rested(self, *subscriptions: EventSubscription) -> None:
        """Wait until nobody works on these."""
        for subscription in subscriptions:
            await until(partial(self.fires_at, subscription))

    async def fires_at(self, subscription: EventSubscription) -> datetime | None:
        """When it comes due; `None` while somebody has it."""
        (found,) = await self.store.occurrences.find_upcoming(queue_owner(subscription.queue), 1)
        return None if found.token else found.fires_at

    async def arrived(self, count: int, path: str | None = None) -> None:
        """Wait for so many arrivals."""
        await until(lambda: len(self.receiver.arrivals(path)) >= count)


@asynccontextmanager
async def delivering(
    store: Store,
    receiver: Receiver,
    *,
    broker: MemoryBroker | None = None,
    care: Care = CARE,
    call_seconds: float = 5.0,
    in_flight: int = 200,
    outgoing: Outgoing | None = None,
    ticks: bool = True,
) -> AsyncIterator[Delivering]:
    """A worker at work; whoever else wakes queues has the same broker. `ticks` tells whether there is a clock."""
    broker, time, stopping = broker or MemoryBroker(), DatabaseTime(store), asyncio.Event()
    await broker.setup((DELIVER_QUEUE, SLOW_QUEUE))
    waker = Waker(store, broker, time, handed_for=LEASE, tick=timedelta(seconds=1))
    ring = KeyRing([msgspec.json.decode(b'"' + b"A" * 43 + b'="')])
    outgoing = outgoing or local_outgoing(call_seconds)
    made = Delivering(store, time, waker, ring, receiver)
    tools = DeliveringTools(
        store=store,
        time=time,
        waker=waker,
        outgoing=outgoing,
        ring=ring,
        subscribing=made.subscribing,
        care=care,
        call_seconds=call_seconds,
        ahead=0,
        budget=made.budget,
    )
    stages: Sequence[DeliverQueues] = (
        DeliverQueues(tools, in_flight=in_flight),
        DeliverSlowQueues(tools, in_flight=in_flight // 4),
    )
    tasks = [asyncio.create_task(Consumer(broker, stage, name="test").run(stopping)) for stage in stages]
    if ticks:
        tasks.append(asyncio.create_task(_tick(store, time, DueQueues(waker), stopping)))
    try:
        yield made
    finally:
        for stage in stages:
            stage.stop()
        stopping.set()
        done, pending = await asyncio.wait(tasks, timeout=10)
        for task in pending:
            task.cancel()
        await waker.close()
        await outgoing.close()
        for task in done:
            task.result()


def local_outgoing(call_seconds: float) -> HttpOutgoing:
    """A client that may call this machine."""
    return HttpOutgoing.open(allowed_networks=("127.0.0.0/8",), timeout_seconds=call_seconds, connections=0)


async def _tick(store: Store, clock: DatabaseTime, due: DueQueues, stopping: asyncio.Event) -> None:
    """What the clock does: hand over what is due."""
    while not stopping.is_set():
        now, token = await clock.now(), fresh_token()
        heads = await store.occurrences.heads(Visible(now))
        for shard in () if heads is None else heads.shards or range(SHARDS):
            await store.occurrences.claim(shard, token, Visible(now), leased_until=now + LEASE)
        claimed = await store.occurrences.read(token, limit=1_000) if heads is not None else []
        await asyncio.gather(*(due.begin(occurrence) for occurrence in claimed))
        await asyncio.sleep(0.05)


def seconds_between(began_ns: int, ended_ns: int) -> float:
    return (ended_ns - began_ns) / 1e9


def now_ns() -> int:
    return time.time_ns()
