"""Replays: requests make them, workers bring the events that the log still has to a subscription, upkeep finds lost
ones.

    find where the log begins and ends ──> store the replay ──> tell workers

    take it ──> find where the log ends, unless known ──> [ read ──> fold ──> flush ──> wake ]*
        ^                                                                        │
        └──── upkeep <──── a worker has died, or the queue is half full <────────┘

One transaction stores the events and how far the replay has read, so the next worker continues exactly there. A
message is worth at most `TURN_SECONDS` of work: replays take turns.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, assert_never

import structlog
from msgspec import Struct
from msgspec.structs import asdict, replace

from shared.bus.flushing import WakeAll
from shared.bus.rules.cutting import BacklogLimits
from shared.bus.rules.deliveries import BusDeadLetter
from shared.bus.rules.filters import EventFilter
from shared.bus.rules.folding import FOLD_LIMITS, FoldLimits, LogEntry, merge_entries, read_entries
from shared.bus.rules.notices import notice_of_missing
from shared.bus.rules.replays import (
    MARGIN,
    MOST_FAULTS,
    Replay,
    ReplayFold,
    ReplayState,
    cancel,
    empty_entry,
    fix_range,
    fold_replay,
    limit_folds,
    number_replay,
    reason_to_wait,
    replay_of_letter,
)
from shared.bus.rules.subscriptions import EventSubscription, has_to_be_made
from shared.bus.rules.wake_ups import REPLAY_QUEUE, RunReplay
from shared.bus.store_log import FlushResult
from shared.bus.store_replays import ReplayFlush
from shared.clock.store_occurrences import fresh_token
from shared.core.errors import Conflict, Gone, Invalid, NotFound, Unavailable
from shared.core.instants import EPOCH
from shared.core.tasks import encode
from shared.drivers.kafka import Stream
from shared.drivers.kafka.reading import Chunk, RangeReader
from shared.drivers.mongo.documents import Page
from shared.drivers.mongo.transactions import OwnSession
from shared.drivers.rabbitmq import Broker
from shared.runtime.faults import fault
from shared.runtime.loops import Swept
from shared.runtime.metrics import BUS_EVENTS_ADDED, BUS_EVENTS_LOST, BoundedLabels
from shared.runtime.tracing import current_trace, root
from shared.store import Store

if TYPE_CHECKING:
    from shared.bus.subscriptions import Subscribing

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
            return "another request has just retried it, or made another replay of its subscription"
        await fault("replay.after_insert")
        await self._tell(replay)
        return ""

    async def page(self, namespace: str, key: str, *, below: int | None, limit: int) -> Page[Replay]:
        subscription = await self._subscribing.get(namespace, key)
        return await self._store.bus_replays.page(subscription.queue, below=below, limit=limit)

    async def cancel(self, namespace: str, key: str) -> None:
        """Cancel all replays of a subscription; events that they brought stay. Raises `NotFound` also if none is
        open."""
        subscription, now = await self._subscribing.get(namespace, key), await self._now()
        if not await self._store.bus_replays.cancel_all(subscription.queue, "its owner has cancelled it", now):
            raise NotFound(f"no replay of {key} is under way", field="key", value=key)

    async def _add(self, subscription: EventSubscription, wish: ReplayWish, now: datetime) -> Replay | None:
        number = await self._next_number(subscription.namespace, subscription.key, subscription.queue)
        ranges = await self._stream.find_ranges(
            self._log_topic, since=max(wish.since, EPOCH + MARGIN) - MARGIN, until=wish.until and wish.until + MARGIN
        )
        replay = fix_range(number_replay(subscription, number, now, told_at=now, **asdict(wish)), ranges)
        return replay if await self._store.bus_replays.add(replay) else None

    async def _next_number(self, namespace: str, key: str, queue: str) -> int:
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
    task = RunReplay(replay_id=replay_id, trace=current_trace())
    await broker.publish(task.queue, encode(task))


LEASE = timedelta(seconds=20)
TURN_SECONDS = 60.0
HELD_FOR = timedelta(seconds=10)
_READ_SECONDS = 1.0
_LOST_AT_ONCE = 100
_PATIENCE = timedelta(minutes=1)
_BUSY = 30  # so much longer is the patience while messages wait


class ReplayTools(Struct, frozen=True, kw_only=True):
    """The dependencies of a replay. `now` returns the database's time."""

    store: Store
    stream: Stream
    broker: Broker
    wake: WakeAll
    now: Callable[[], Awaitable[datetime]]
    limits: BacklogLimits
    log_topic: str
    fold_limits: FoldLimits = FOLD_LIMITS


class Replaying:
    def __init__(self, tools: ReplayTools) -> None:
        self._tools = tools
        self._label = BoundedLabels()

    async def run(self, replay_id: str, stopping: asyncio.Event) -> None:
        """Work at a replay for a turn, unless another worker does or it is over."""
        replays, now = self._tools.store.bus_replays, await self._tools.now()
        session = replays.open_session()
        try:
            taken = await replays.take(replay_id, fresh_token(), session, now=now, leased_until=now + LEASE)
            if taken is not None:
                await fault("replay.after_take")
                await ReplayTurn(self._tools, taken, session, self._label).run(stopping)
        finally:
            await session.close()

    async def requeue_lost(self, patience: timedelta = _PATIENCE) -> Swept:
        """Publish again the messages of replays that no worker has and whose last message is older than `patience`. The
        patience is much longer while messages wait, because replays take turns."""
        replays, now, told = self._tools.store.bus_replays, await self._tools.now(), 0
        is_busy = await self._tools.broker.depth(REPLAY_QUEUE) > 0
        before = now - (patience * _BUSY if is_busy else patience)
        for replay_id in await replays.find_untold(now, before, limit=_LOST_AT_ONCE):
            if await replays.note_told(replay_id, now, before):
                await tell_workers(self._tools.broker, replay_id)
                told += 1
        return Swept(retried=told)

    async def give_up(self, replay_id: str, reason: str) -> None:
        """Count an internal error. Upkeep tries the replay again; after `MOST_FAULTS` in a row it has failed."""
        replay = await self._tools.store.bus_replays.note_fault(replay_id)
        if replay is None or replay.faults < MOST_FAULTS:
            return
        failed = await self._tools.store.bus_replays.fail(replay_id, reason, await self._tools.now())
        if failed is not None:
            BUS_EVENTS_LOST.labels(self._label(failed.subscription), "fault").inc(failed.total - failed.read)
            log.error("replay given up", replay=replay_id, reason=reason)


class ReplayTurn:
    def __init__(self, tools: ReplayTools, replay: Replay, session: OwnSession, label: BoundedLabels) -> None:
        self._tools = tools
        self._replay = replay
        self._session = session
        self._label = label
        self._limits = limit_folds(tools.limits, tools.fold_limits)
        self._ends = time.monotonic() + TURN_SECONDS
        self._entries: Sequence[LogEntry] = ()

    async def run(self, stopping: asyncio.Event) -> None:
        """Read and flush until the replay is done, has to wait or belongs to another worker, or the turn is over. After
        `Unavailable`, the next worker continues from what is stored."""
        try:
            if not self._replay.is_fixed and not await self._fix():
                return
            if (subscription := await self._find_subscription()) is None or await self._has_to_wait(subscription):
                return
            async with self._tools.stream.read_ranges(self._replay.ranges_left) as reader:
                while await self._go_on(reader):
                    if stopping.is_set() or time.monotonic() >= self._ends:
                        await self._hand_over()
                        return
        except BaseException:
            with suppress(Unavailable):  # upkeep finds it when its lease is over
                await self._tools.store.bus_replays.release(self._replay)
            raise
        finally:
            with suppress(Unavailable):
                await self._tools.store.bus_replays.leave(self._replay.id, self._session)

    async def _fix(self) -> bool:
        """Set the end of a replay that waited for its subscription: the end of the log now that the subscription
        collects again. `False` if this worker no longer has the replay."""
        since = self._replay.created_at - MARGIN
        ranges = await self._tools.stream.find_ranges(self._tools.log_topic, since=since)
        return await self._store(fix_range(self._replay, ranges))

    async def _go_on(self, reader: RangeReader) -> bool:
        """Flush some entries, or read more; `False` if this turn has nothing more to do."""
        if not self._entries and self._replay.ranges_left:
            self._entries = self._entries_of(await reader.read(_READ_SECONDS))
            if not self._entries:
                return await self._store(replace(self._replay, leased_until=await self._tools.now() + LEASE))
        subscription = await self._find_subscription()
        if subscription is None or await self._has_to_wait(subscription):
            return False
        taken = await self._flush(self._entries, subscription)
        if taken is None or self._replay.state is ReplayState.DONE:
            return False
        self._entries = self._entries[taken:]
        return True

    def _entries_of(self, chunks: Sequence[Chunk]) -> list[LogEntry]:
        """The entries by arrival. If no record follows, the end of a range is an entry too."""
        partitions = [read_entries(each.partition, each.values, each.offsets, each.next) for each in chunks]
        ends = [empty_entry(chunk.partition, chunk.next) for chunk in chunks if not chunk.offsets]
        return merge_entries([*partitions, ends])

    async def _find_subscription(self) -> EventSubscription | None:
        found = await self._tools.store.bus_subscriptions.get(self._replay.subscription)
        if found is not None and not has_to_be_made(found) and found.queue == self._replay.queue:
            return found
        log.info("replay cancelled, as its subscription is removed", replay=self._replay.id)
        await self._store(cancel(self._replay, "its subscription is removed", await self._tools.now()))
        return None

    async def _has_to_wait(self, subscription: EventSubscription) -> bool:
        backlogs = await self._tools.store.bus_standings.read_uncut([subscription.queue])
        reason = reason_to_wait(subscription, backlogs.get(subscription.queue), self._tools.limits)
        if reason:
            until = await self._tools.now() + HELD_FOR
            await self._store(replace(self._replay, state=ReplayState.HELD, reason=reason, leased_until=until))
        return bool(reason)

    async def _flush(self, entries: Sequence[LogEntry], subscription: EventSubscription) -> int | None:
        """Returns how many entries were flushed; 0 if the subscription has changed; `None` if this worker no longer has
        the replay."""
        now = await self._tools.now()
        gone = await self._tools.store.bus_topics.read_gone(self._replay.topics or subscription.topics)
        fold = fold_replay(self._replay, entries, subscription, now=now, limits=self._limits, gone=gone)
        after = replace(fold.after, leased_until=now + LEASE)
        flush = ReplayFlush(
            before=self._replay,
            after=after,
            version=subscription.version,
            at=now,
            chunks=fold.folded.chunks,
            wakes=fold.folded.wakes,
            missing=notice_of_missing(after, fold.lost, now) if fold.lost else None,
        )
        await fault("replay.before_flush")
        with root("replay", events=fold.taken, pairs=fold.folded.pairs):
            result = await self._tools.store.bus_replays.flush(flush, self._session)
        match result:
            case FlushResult.STORED:
                self._replay = after
                await fault("replay.after_flush")
                self._count(fold)
                await self._wake(flush)
                return fold.taken
            case FlushResult.OUTDATED:
                return 0
            case FlushResult.OVERTAKEN:
                return None
            case _:
                assert_never(result)

    def _count(self, fold: ReplayFold) -> None:
        label = self._label(self._replay.subscription)
        BUS_EVENTS_ADDED.labels(label).inc(fold.folded.pairs)
        if fold.lost:
            BUS_EVENTS_LOST.labels(label, "log").inc(fold.lost)
            log.warning("the log has no more what a replay is for", replay=self._replay.id, records=fold.lost)
        if self._replay.state is ReplayState.DONE:
            log.info("replay done", replay=self._replay.id, events=self._replay.events, lost=self._replay.lost)

    async def _wake(self, flush: ReplayFlush) -> None:
        if flush.wakes:
            await self._tools.wake(flush.wakes)
            await self._tools.store.bus_flushes.forget_unwoken(list(flush.unwoken))

    async def _hand_over(self) -> None:
        await self._tools.store.bus_replays.release(self._replay, told_at=await self._tools.now())
        await tell_workers(self._tools.broker, self._replay.id)

    async def _store(self, after: Replay) -> bool:
        stored = await self._tools.store.bus_replays.store(self._replay, after)
        if stored:
            self._replay = after
        return stored
