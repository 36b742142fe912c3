"""Replays: events that the log still has, brought to one subscription once more.

    waiting ───> running <──> held
       │            ├──────────┴──> done
       │            ├──────────────> failed      (by faults of ours)
       └────────────┴──────────────> cancelled   (by its owner, or with its subscription)

A replay reads the log from where each partition stood at a moment to where it ended when the replay was asked for. It
has positions of its own, and folds as the fan-out does, for its one subscription alone. Its events arrive now: they
wait in the queue as new events do. It is held while the queue is half full. One that waits was made when its
subscription was suspended: it begins when that is resumed, and brings what was published in between.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.bus.backlog import Backlog, BacklogLimits
from shared.domain.bus.dead_letters import BusDeadLetter
from shared.domain.bus.events import BusEvent
from shared.domain.bus.filters import EventFilter
from shared.domain.bus.folding import FOLD_LIMITS, BusFold, Collector, Collectors, FoldLimits, LogEntry, fold
from shared.domain.bus.subscriptions import EventSubscription, FormerChoice, subscription_of
from shared.domain.instants import EPOCH, ms
from shared.domain.positions import LogRange, Position
from shared.domain.transitions import final


class ReplayState(StrEnum):
    """The state of a replay."""

    WAITING = "waiting"  # for its subscription to be resumed
    RUNNING = "running"
    HELD = "held"  # the queue is half full, or collects nothing
    DONE = "done"
    CANCELLED = "cancelled"  # by its owner, or with its subscription
    FAILED = "failed"


REPLAY_TRANSITIONS: dict[ReplayState, frozenset[ReplayState]] = {
    ReplayState.WAITING: frozenset({ReplayState.RUNNING, ReplayState.CANCELLED}),
    ReplayState.RUNNING: frozenset({ReplayState.HELD, ReplayState.DONE, ReplayState.FAILED, ReplayState.CANCELLED}),
    ReplayState.HELD: frozenset({ReplayState.RUNNING, ReplayState.DONE, ReplayState.FAILED, ReplayState.CANCELLED}),
    ReplayState.DONE: frozenset(),
    ReplayState.CANCELLED: frozenset(),
    ReplayState.FAILED: frozenset(),
}

REPLAYS_OVER = final(REPLAY_TRANSITIONS)
MOST_FAULTS = 3
"""After so many faults of ours in a row a replay has failed."""

WORKED_ON = frozenset({ReplayState.RUNNING, ReplayState.HELD})
"""The states in which a worker has something to do."""

MARGIN = timedelta(minutes=1)
"""So much may lie between the time when an event arrived and that under which the log finds it, and so long may a flush
take that knows a subscription as it was."""


class ReplaySpan(Struct, frozen=True):
    """How far a replay has read a partition: it began at `begins` and stands before the offset `at`."""

    partition: str
    log: str
    begins: int
    at: int
    ends: int

    @property
    def is_read(self) -> bool:
        """Whether nothing is left to read."""
        return self.at >= self.ends


class Replay(Struct, frozen=True, kw_only=True):
    """A replay of the events that arrived from `since` to before `until`, as far as these are given. Without `topics`
    it is for those of its subscription, and without a `filter` with that one's own.

    `number` counts the replays of the subscription's queue. `is_fixed`: its end is known. `step` counts its flushes,
    and `order` is the one of its last chunks. `events` were brought; `lost` counts the offsets that the log did not
    have any more, and `begins_late` says that there may have been others before them, from another log or one that
    forgets. A worker has it by `token`, until `leased_until`. `told_at` is when workers were told of it that have not
    taken it yet, and `faults` counts those of ours in a row.
    """

    id: str
    number: int
    queue: str
    namespace: str
    key: str
    since: datetime | None = None
    until: datetime | None = None
    topics: tuple[str, ...] = ()
    filter: EventFilter | None = None
    state: ReplayState = ReplayState.RUNNING
    reason: str = ""
    is_fixed: bool = False
    spans: tuple[ReplaySpan, ...] = ()
    step: int = 0
    order: int = 0
    events: int = 0
    lost: int = 0
    begins_late: bool = False
    created_at: datetime
    ended_at: datetime | None = None
    token: str = ""
    leased_until: datetime = EPOCH
    told_at: datetime | None = None
    faults: int = 0

    @property
    def subscription(self) -> str:
        """The id of the subscription that it is for."""
        return subscription_of(self.queue)

    @property
    def total(self) -> int:
        """How many records of the log it reads."""
        return sum(max(span.ends - span.begins, 0) for span in self.spans)

    @property
    def read(self) -> int:
        """How many of these it has read."""
        return sum(max(min(span.at, span.ends) - span.begins, 0) for span in self.spans)

    @property
    def ranges_left(self) -> dict[str, LogRange]:
        """The ranges that it still has to read."""
        return {span.partition: LogRange(span.at, span.ends, span.log) for span in self.spans if not span.is_read}


class ReplayFold(Struct, frozen=True):
    """The content of one flush of a replay, and the replay once it is flushed. `taken` counts the entries that it is
    made of."""

    after: Replay
    folded: BusFold
    taken: int
    lost: int


class _ReplayCollectors(Collectors):
    """The one subscription of a replay, which wants what arrived in its time."""

    def __init__(self, replay: Replay, subscription: EventSubscription, gone: tuple[FormerChoice, ...]) -> None:
        super().__init__()
        self._since = None if replay.since is None else ms(replay.since)
        self._until = None if replay.until is None else ms(replay.until)
        topics, wanted = replay.topics or subscription.topics, replay.filter or subscription.filter
        # A replay that was asked for is for what is wanted now; that of a suspension, for what was wanted then.
        former = subscription.former if replay.since is None else ()
        asked = replace(subscription, topics=topics, filter=wanted, former=(*former, *gone))
        self.learn(subscription.version, [asked], is_whole=True)

    def find(self, event: BusEvent, partition: str, offset: int) -> list[Collector]:
        if self._since is not None and event.at < self._since:
            return []
        if self._until is not None and event.at >= self._until:
            return []
        return super().find(event, partition, offset)


def replay_id(queue: str, number: int) -> str:
    """The id of a queue's replay: they sort by their numbers."""
    return f"{queue}/{number:09d}"


def number_replay(about: EventSubscription | BusDeadLetter, number: int, now: datetime, **fields: Any) -> Replay:
    """The replay of this number of a subscription's queue, or of that which a letter is about."""
    return Replay(
        id=replay_id(about.queue, number),
        number=number,
        queue=about.queue,
        namespace=about.namespace,
        key=about.key,
        created_at=now,
        **fields,
    )


def replay_of_suspension(
    subscription: EventSubscription, number: int, positions: Mapping[str, Position], now: datetime
) -> Replay:
    """The replay of what a subscription that is suspended now does not collect: all behind these positions."""
    spans = tuple(
        ReplaySpan(partition, at.log, at.offset, at.offset, at.offset) for partition, at in sorted(positions.items())
    )
    reason = "its subscription is suspended"
    return number_replay(subscription, number, now, state=ReplayState.WAITING, reason=reason, spans=spans)


def replay_of_letter(
    letter: BusDeadLetter, number: int, ranges: Mapping[str, LogRange], now: datetime
) -> Replay | None:
    """The replay of the events that a letter tells as lost, as far as the log has them in these ranges; `None` where it
    has none. The log has the events of others between them; the topics and the filter that the subscription has now
    choose."""
    spans, begins_late = list[ReplaySpan](), False
    for partition, (first, end) in sorted(letter.spans.items()):
        range = ranges.get(partition)
        if range is None or range.log != letter.logs.get(partition) or min(end, range.ends) <= max(first, range.begins):
            begins_late = True
            continue
        # Where it begins before the log does, the reader jumps, and what is missing is counted.
        begins_late = begins_late or range.begins > first or range.ends < end
        spans.append(ReplaySpan(partition, range.log, first, first, min(end, range.ends)))
    if not spans:
        return None
    fixed = {"is_fixed": True, "spans": tuple(spans), "begins_late": begins_late}
    return number_replay(letter, number, now, told_at=now, **fixed)


def begin_at(resumed_at: datetime) -> dict[str, object]:
    """The changes of one that waited. Events later than `MARGIN` behind this are collected again by themselves."""
    return {"state": ReplayState.RUNNING, "reason": "", "until": resumed_at + MARGIN, "leased_until": resumed_at}


def cancel(replay: Replay, reason: str, now: datetime) -> Replay:
    """The replay once it is cancelled."""
    return replace(replay, state=ReplayState.CANCELLED, reason=reason, ended_at=now)


def limit_folds(limits: BacklogLimits, most: FoldLimits = FOLD_LIMITS) -> FoldLimits:
    """How much one flush of a replay has: so little that a queue which is half full has room for it."""
    return replace(most, pairs=min(most.pairs, limits.events // 4), bytes=min(most.bytes, limits.bytes // 4))


def reason_to_wait(subscription: EventSubscription, backlog: Backlog | None, limits: BacklogLimits) -> str:
    """Why a replay may bring nothing now; empty where it may."""
    if not subscription.collects:
        return f"its subscription is {subscription.state}"
    return "half of what may wait in the queue does" if has_to_be_held(backlog, limits) else ""


def fix_range(replay: Replay, ranges: Mapping[str, LogRange]) -> Replay:
    """The replay with its end. It begins where each partition was read to, if that is known and was the same log; else
    where the range does."""
    known = {span.partition: span for span in replay.spans}
    spans, begins_late = list[ReplaySpan](), not known.keys() <= ranges.keys()
    for partition, range in sorted(ranges.items()):
        span = known.get(partition)
        if span is not None and span.log in ("", range.log):
            begins = span.at
        else:
            begins = range.begins
            begins_late = begins_late or span is not None or 0 < range.first == range.begins
        spans.append(ReplaySpan(partition, range.log, begins, begins, max(range.ends, begins)))
    return replace(replay, spans=tuple(spans), is_fixed=True, begins_late=begins_late)


def has_to_be_held(backlog: Backlog | None, limits: BacklogLimits) -> bool:
    """Whether so much waits in a queue that a replay may add nothing: half of what may."""
    return backlog is not None and (2 * backlog.events >= limits.events or 2 * backlog.bytes >= limits.bytes)


def empty_entry(partition: str, offset: int) -> LogEntry:
    """The entry for the end of a range behind which no record came: the log has them no more."""
    return LogEntry(partition, offset, offset, b"", None, 0)


def fold_replay(
    replay: Replay,
    entries: Sequence[LogEntry],
    subscription: EventSubscription,
    *,
    now: datetime,
    limits: FoldLimits = FOLD_LIMITS,
    gone: tuple[FormerChoice, ...] = (),
) -> ReplayFold:
    """Fold as many of the first entries as one flush may have, at least one, for this subscription alone. `gone` keeps
    out what was published on topics that were removed and made anew."""
    folded = fold(entries, _ReplayCollectors(replay, subscription, gone), now=now, limits=limits, arrive_now=True)
    # An event is divided among queues where one flush has no room for all of them. Here is one, and it has it.
    taken = folded.taken + bool(folded.divided)
    spans, lost = _advance(replay.spans, entries[:taken])
    state = ReplayState.DONE if all(span.is_read for span in spans) else ReplayState.RUNNING
    after = replace(
        replay,
        state=state,
        reason="",
        spans=spans,
        faults=0,
        step=replay.step + 1,
        order=max(ms(now), replay.order + 1),
        events=replay.events + folded.pairs,
        lost=replay.lost + lost,
        ended_at=now if state in REPLAYS_OVER else None,
    )
    return ReplayFold(after, folded, taken, lost)


def _advance(spans: Sequence[ReplaySpan], entries: Iterable[LogEntry]) -> tuple[tuple[ReplaySpan, ...], int]:
    """The spans once these entries are read, and how many offsets were missing before and between them."""
    at, lost = {span.partition: span.at for span in spans}, 0
    for entry in entries:
        lost += max(entry.offset - at[entry.partition], 0)
        at[entry.partition] = entry.next
    return tuple(replace(span, at=at[span.partition]) for span in spans), lost
