"""Replays, as people ask for them: made by a request, done by workers (`replaying.py`), found again by upkeep.

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
"""How many replays of a namespace may be under way: they take turns with those of others."""

_TRIES = 5


class ReplayWish(Struct, frozen=True, kw_only=True):
    """Which events are to be brought again: those that arrived from `since` to before `until`, of these topics, or of
    the subscription's own, that this filter keeps, or the subscription's."""

    since: datetime
    until: datetime | None = None
    topics: tuple[str, ...] = ()
    filter: EventFilter | None = None


class BusReplayFlow:
    """Makes, shows and cancels replays. `log_topic` is the log's; `now` tells the database's time. All raise
    `Unavailable`."""

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
        """Have events brought again. Without the broker, upkeep tells workers.

        Raises:
            NotFound: there is no such subscription.
            Forbidden: a topic is private to another namespace.
            Invalid: it begins after it ends, or has not begun yet.
            Conflict: another replay of the subscription is not over, or too many of the namespace are not.
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
        """Have the events brought again that a letter tells as lost, in whose place the replay stands; returns why that
        cannot be, or nothing. Raises `Gone` where the log has none of them."""
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
        """The replays of a subscription with numbers below this one, the last first. Raises `NotFound`."""
        subscription = await self._subscribing.get(namespace, key)
        return await self._store.bus_replays.page(subscription.queue, below=below, limit=limit)

    async def cancel(self, namespace: str, key: str) -> None:
        """Cancel all replays of a subscription; what they have brought stays. Raises `NotFound` where there is no such
        subscription, or no replay under way."""
        subscription, now = await self._subscribing.get(namespace, key), await self._now()
        if not await self._store.bus_replays.cancel_all(subscription.queue, "its owner has cancelled it", now):
            raise NotFound(f"no replay of {key} is under way", field="key", value=key)

    async def _add(self, subscription: EventSubscription, wish: ReplayWish, now: datetime) -> Replay | None:
        """Store a replay with its range; `None` where somebody else has stored one in between."""
        number = await self._next_number(subscription.namespace, subscription.key, subscription.queue)
        ranges = await self._stream.find_ranges(
            self._log_topic, since=max(wish.since, EPOCH + MARGIN) - MARGIN, until=wish.until and wish.until + MARGIN
        )
        replay = fix_range(number_replay(subscription, number, now, told_at=now, **asdict(wish)), ranges)
        return replay if await self._store.bus_replays.add(replay) else None

    async def _next_number(self, namespace: str, key: str, queue: str) -> int:
        """The number of a queue's next replay. Raises `Conflict` where there may be none now."""
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
    """Have a worker go on with a replay. Raises `Unavailable`."""
    task = RunReplay(replay_id=replay_id, trace=current_trace())
    await broker.publish(task.queue, encode(task))
