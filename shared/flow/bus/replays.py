"""Replays: requests make them, workers do them (`replaying.py`), upkeep finds lost ones.

find where the log begins and ends ──> store the replay ──> tell workers
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

import structlog
from msgspec import Struct
from msgspec.structs import asdict

from shared.broker import Broker
from shared.domain.bus.dead_letters import BusDeadLetter
from shared.domain.bus.filters import EventFilter
from shared.domain.bus.replays import MARGIN, Replay, fix_range, number_replay, replay_of_letter
from shared.domain.bus.subscriptions import EventSubscription
from shared.domain.bus.tasks import RunReplay
from shared.domain.errors import Conflict, Gone, Invalid, NotFound, Unavailable
from shared.domain.instants import EPOCH
from shared.domain.tasks import encode
from shared.runtime.faults import fault
from shared.runtime.tracing import current_trace
from shared.store import Store
from shared.store.documents import Page
from shared.stream import Stream

if TYPE_CHECKING:  # it brings cryptography along, and not every process needs that
    from shared.flow.bus.subscribing import Subscribing

log = structlog.get_logger(__name__)

MOST_AT_A_TIME = 10
"""The most open replays of a namespace."""

_TRIES = 5


class ReplayWish(Struct, frozen=True, kw_only=True):
    """The events to replay: they arrived from `since` to before `until`, have one of these topics (empty: the
    subscription's) and pass this filter (`None`: the subscription's)."""

    since: datetime
    until: datetime | None = None
    topics: tuple[str, ...] = ()
    filter: EventFilter | None = None


class BusReplayFlow:
    """Makes, lists and cancels replays. `log_topic` is the log's; `now` returns the database's time."""

    def __init__(
        self,
        store: Store,
        stream: Stream,
        broker: Broker,
        subscribing: "Subscribing",
        now: Callable[[], Awaitable[datetime]],
        *,
        log_topic: str,
    ) -> None:
        self._store = store
        self._stream = stream
        self._broker = broker
        self._subscribing = subscribing
        self._now = now
        self._log_topic = log_topic

    async def start(self, namespace: str, key: str, wish: ReplayWish) -> Replay:
        """Start a replay. If the broker is away, upkeep tells workers later.

        Raises:
            Forbidden: a topic is private to another namespace.
            Invalid: the range begins after its end, or in the future.
            Conflict: another replay of the subscription is open, or too many of the namespace are.
        """
        subscription = await self._subscribing.get(namespace, key)
        now = await self._now()
        for topic in (await self._store.bus_topics.with_names(wish.topics)).values():
            topic.check_subscriber(namespace, field="topics")
        if wish.since >= min(wish.until or now, now):
            raise Invalid("must be before 'to', and not in the future", field="from")
        for _ in range(_TRIES):
            stored = await self._add(subscription, wish, now)
            if stored is not None:
                await fault("replay.after_insert")
                await self._tell(stored)
                return stored
        raise Unavailable(f"replays of {key} are made all the time")

    async def bring_back(self, letter: BusDeadLetter) -> str:
        """Replace a letter about lost events by a replay of them; returns the reason if that is impossible, else `""`.
        Raises `Gone` if the log has none of the events."""
        try:
            number = await self._next_number(letter.namespace, letter.key, letter.queue)
        except Conflict as refusal:
            return str(refusal)
        ranges = await self._stream.find_ranges(self._log_topic)
        replay = replay_of_letter(letter, number, ranges, await self._now())
        if replay is None:
            raise Gone("the log has its events no more", field="id", value=letter.id)
        if not await self._store.bus_replays.add_in_place_of(letter, replay):
            return "somebody else has just retried it, or made another replay of its subscription"
        await fault("replay.after_insert")
        await self._tell(replay)
        return ""

    async def page(self, namespace: str, key: str, *, below: int | None, limit: int) -> Page[Replay]:
        """Replays of a subscription with numbers below `below`, last first."""
        subscription = await self._subscribing.get(namespace, key)
        return await self._store.bus_replays.page(subscription.queue, below=below, limit=limit)

    async def cancel(self, namespace: str, key: str) -> None:
        """Cancel all replays of a subscription; events that they brought stay. Raises `NotFound` also if none is
        open."""
        subscription, now = await self._subscribing.get(namespace, key), await self._now()
        if not await self._store.bus_replays.cancel_all(subscription.queue, "its owner has cancelled it", now):
            raise NotFound(f"no replay of {key} is under way", field="key", value=key)

    async def _add(self, subscription: EventSubscription, wish: ReplayWish, now: datetime) -> Replay | None:
        """Store a replay with its range; `None` if another request has stored one in between."""
        number = await self._next_number(subscription.namespace, subscription.key, subscription.queue)
        ranges = await self._stream.find_ranges(
            self._log_topic, since=max(wish.since, EPOCH + MARGIN) - MARGIN, until=wish.until and wish.until + MARGIN
        )
        replay = fix_range(number_replay(subscription, number, now, told_at=now, **asdict(wish)), ranges)
        return replay if await self._store.bus_replays.add(replay) else None

    async def _next_number(self, namespace: str, key: str, queue: str) -> int:
        """The number of a queue's next replay. Raises `Conflict` if it may have none now."""
        last = await self._store.bus_replays.page(queue, limit=1)
        if await self._store.bus_replays.has_open(queue):
            raise Conflict("another replay of the subscription is not over", field="key", value=key)
        if await self._store.bus_replays.count_worked_on(namespace, most=MOST_AT_A_TIME) >= MOST_AT_A_TIME:
            raise Conflict(f"{MOST_AT_A_TIME} replays of the namespace are not over", field="key", value=key)
        return last[0].number + 1 if last else 1

    async def _tell(self, replay: Replay) -> None:
        try:
            await tell_workers(self._broker, replay.id)
        except Unavailable as error:
            log.warning("a replay is left to upkeep", replay=replay.id, reason=str(error))
            await self._store.bus_replays.release(replay)


async def tell_workers(broker: Broker, replay_id: str) -> None:
    """Publish a message so that a worker continues a replay."""
    task = RunReplay(replay_id=replay_id, trace=current_trace())
    await broker.publish(task.queue, encode(task))
