"""Replays: events that the log still has, brought to one subscription again.

    waiting ───> running <──> held
       │            ├──────────┴──> done
       │            ├──────────────> failed      (by Carillon's faults)
       └────────────┴──────────────> cancelled   (by its owner, or with its subscription)

A replay reads the log from the partitions' positions at a moment to the log's end at the request. It has positions of
its own, and folds as the fan-out does, for one subscription alone. Its events arrive now: they wait in the queue like
new ones. It is held while the queue is half full. A suspension makes a waiting replay: it begins with the resumption,
and brings the events published in between.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shared.bus.rules.cutting import Backlog, BacklogLimits
from shared.bus.rules.deliveries import BusDeadLetter
from shared.bus.rules.events import BusEvent
from shared.bus.rules.filters import EventFilter
from shared.bus.rules.folding import FOLD_LIMITS, BusFold, Collector, Collectors, FoldLimits, LogEntry, fold
from shared.bus.rules.subscriptions import EventSubscription, FormerChoice, subscription_of
from shared.core.documents import LogRange, Position, final
from shared.core.instants import EPOCH, ms


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
"""A replay fails after this many of Carillon's faults in a row."""

WORKED_ON = frozenset({ReplayState.RUNNING, ReplayState.HELD})
"""The states with work for a worker."""

MARGIN = timedelta(minutes=1)
"""The maximum between an event's arrival and its time in the log, and the maximum age of a subscription in a flush."""


class ReplaySpan(Struct, frozen=True):
    """The progress of a replay in a partition: from `begins`, before the offset `at`, to `ends`."""

    partition: str
    log: str
    begins: int
    at: int
    ends: int

    @property
    def is_read(self) -> bool:
        return self.at >= self.ends


class Replay(Struct, frozen=True, kw_only=True):
    """A replay of the events that arrived from `since` on and before `until`, as far as these are given. `topics` and
    `filter` default to those of its subscription.

    `number` counts the replays of the queue. `is_fixed`: its end is known. `step` counts its flushes, and `order` is
    that of its last chunks. `events` were brought; `lost` counts the offsets that the log had no more, and
    `begins_late`: there may have been others before them, in another log or a log that forgets. A worker owns it by
    `token`, until `leased_until`. `told_at` is the time when workers were told of it, until one takes it. `faults`
    counts Carillon's faults in a row.
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
        return subscription_of(self.queue)

    @property
    def total(self) -> int:
        return sum(max(span.ends - span.begins, 0) for span in self.spans)

    @property
    def read(self) -> int:
        return sum(max(min(span.at, span.ends) - span.begins, 0) for span in self.spans)

    @property
    def ranges_left(self) -> dict[str, LogRange]:
        return {span.partition: LogRange(span.at, span.ends, span.log) for span in self.spans if not span.is_read}


class ReplayFold(Struct, frozen=True):
    """The content of one flush of a replay, and the replay after it. `taken` counts the entries."""

    after: Replay
    folded: BusFold
    taken: int
    lost: int


class _ReplayCollectors(Collectors):
    """The one subscription of a replay, which wants the events that arrived in its time."""

    def __init__(self, replay: Replay, subscription: EventSubscription, gone: tuple[FormerChoice, ...]) -> None:
        super().__init__()
        self._since = None if replay.since is None else ms(replay.since)
        self._until = None if replay.until is None else ms(replay.until)
        topics, wanted = replay.topics or subscription.topics, replay.filter or subscription.filter
        # A requested replay uses the present choice; that of a suspension uses the choices of that time.
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
    return f"{queue}/{number:09d}"


def number_replay(about: EventSubscription | BusDeadLetter, number: int, now: datetime, **fields: Any) -> Replay:
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
    """The replay of everything behind these positions, which a suspended subscription does not collect."""
    spans = tuple(
        ReplaySpan(partition, at.log, at.offset, at.offset, at.offset) for partition, at in sorted(positions.items())
    )
    reason = "its subscription is suspended"
    return number_replay(subscription, number, now, state=ReplayState.WAITING, reason=reason, spans=spans)


def replay_of_letter(
    letter: BusDeadLetter, number: int, ranges: Mapping[str, LogRange], now: datetime
) -> Replay | None:
    """The replay of the lost events of a letter, as far as the log has them in these ranges; `None` if it has none. The
    log has events for others between them; the present topics and filter of the subscription choose."""
    spans, begins_late = list[ReplaySpan](), False
    for partition, (first, end) in sorted(letter.spans.items()):
        range = ranges.get(partition)
        if range is None or range.log != letter.logs.get(partition) or min(end, range.ends) <= max(first, range.begins):
            begins_late = True
            continue
        # If it begins before the log does, the reader jumps, and counts the missing offsets.
        begins_late = begins_late or range.begins > first or range.ends < end
        spans.append(ReplaySpan(partition, range.log, first, first, min(end, range.ends)))
    if not spans:
        return None
    fixed = {"is_fixed": True, "spans": tuple(spans), "begins_late": begins_late}
    return number_replay(letter, number, now, told_at=now, **fixed)


def begin_at(resumed_at: datetime) -> dict[str, object]:
    """The changes of a waiting replay. The subscription itself collects events later than `MARGIN` after this."""
    return {"state": ReplayState.RUNNING, "reason": "", "until": resumed_at + MARGIN, "leased_until": resumed_at}


def cancel(replay: Replay, reason: str, now: datetime) -> Replay:
    return replace(replay, state=ReplayState.CANCELLED, reason=reason, ended_at=now)


def limit_folds(limits: BacklogLimits, most: FoldLimits = FOLD_LIMITS) -> FoldLimits:
    """The limits of one flush of a replay: a half-full queue has room for it."""
    return replace(most, pairs=min(most.pairs, limits.events // 4), bytes=min(most.bytes, limits.bytes // 4))


def reason_to_wait(subscription: EventSubscription, backlog: Backlog | None, limits: BacklogLimits) -> str:
    if not subscription.collects:
        return f"its subscription is {subscription.state}"
    return "half of what may wait in the queue does" if has_to_be_held(backlog, limits) else ""


def fix_range(replay: Replay, ranges: Mapping[str, LogRange]) -> Replay:
    """The replay with its end. It begins at the known position of each partition if the log is the same; otherwise at
    the begin of the range."""
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
    return backlog is not None and (2 * backlog.events >= limits.events or 2 * backlog.bytes >= limits.bytes)


def empty_entry(partition: str, offset: int) -> LogEntry:
    """The entry for the end of a range without records: the log has them no more."""
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
    """Fold the first entries that fit into one flush, at least one, for this subscription alone. `gone` excludes events
    on topics that were removed and made anew."""
    folded = fold(entries, _ReplayCollectors(replay, subscription, gone), now=now, limits=limits, arrive_now=True)
    # An event is divided if one flush has no room for all queues. Here is only one queue, and it has the event.
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
    """The spans after these entries, and the number of missing offsets before and between them."""
    at, lost = {span.partition: span.at for span in spans}, 0
    for entry in entries:
        lost += max(entry.offset - at[entry.partition], 0)
        at[entry.partition] = entry.next
    return tuple(replace(span, at=at[span.partition]) for span in spans), lost
