"""A replay brings its subscription each event of its ranges once, in order, and tells what the log has no more."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.bus.rules.cutting import Backlog, BacklogLimits
from shared.bus.rules.deliveries import BusDeadLetter, DeathReason
from shared.bus.rules.events import EventDraft, stamp
from shared.bus.rules.filters import EventFilter
from shared.bus.rules.folding import FoldLimits, LogEntry, merge_entries, read_entries
from shared.bus.rules.replays import (
    REPLAY_TRANSITIONS,
    REPLAYS_OVER,
    WORKED_ON,
    Replay,
    ReplayFold,
    ReplaySpan,
    ReplayState,
    empty_entry,
    fix_range,
    fold_replay,
    has_to_be_held,
    limit_folds,
    number_replay,
    replay_of_letter,
)
from shared.bus.rules.subscriptions import EventSubscription
from shared.core.documents import LogRange, sources
from shared.core.instants import ms

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(days=4)
SUBSCRIPTION = EventSubscription(
    id=f"{1:032x}", namespace="n", key="k", generation="g", callback="", topics=("a",),
    created_at=NOON, updated_at=NOON,
)  # fmt: skip
REPLAY = number_replay(SUBSCRIPTION, 1, LATER)


def entries_of(*offsets: int, partition: str = "log/0", topic: str = "a", kind: str = "update") -> list[LogEntry]:
    """Events whose arrival, in minutes behind noon, is their offset."""
    records = [
        stamp(EventDraft(kind, "https://x/1"), topic=topic, id=f"{partition}:{at}", at=ms(NOON) + 60_000 * at)
        for at in offsets
    ]
    return read_entries(partition, records, offsets, offsets[-1] + 1 if offsets else 0)


def brought(folds: Sequence[ReplayFold]) -> list[str]:
    return [
        msgspec.json.decode(event)["id"] for fold in folds for chunk in fold.folded.chunks for event in chunk.events
    ]


def fold_all(replay: Replay, entries: Sequence[LogEntry], limits: FoldLimits, **fields: object) -> list[ReplayFold]:
    folds, done = list[ReplayFold](), 0
    while done < len(entries):
        subscription = replace(SUBSCRIPTION, **fields)
        folds.append(fold_replay(replay, entries[done:], subscription, now=LATER, limits=limits))
        replay, done = folds[-1].after, done + folds[-1].taken
    return folds


def ranged(**ends: tuple[int, int]) -> Replay:
    ranges = {f"log/{name[1:]}": LogRange(begins, end, "id") for name, (begins, end) in ends.items()}
    return fix_range(REPLAY, ranges)


def test_what_follows_what() -> None:
    state = ReplayState
    assert {state.DONE, state.CANCELLED, state.FAILED} == REPLAYS_OVER
    assert set(sources(REPLAY_TRANSITIONS, state.CANCELLED)) == {state.WAITING, *WORKED_ON}
    assert set(sources(REPLAY_TRANSITIONS, state.RUNNING)) == {state.WAITING, state.HELD}
    assert set(sources(REPLAY_TRANSITIONS, state.DONE)) == WORKED_ON


@given(
    st.lists(st.sets(st.integers(0, 30), max_size=20), min_size=1, max_size=3),
    st.builds(FoldLimits, pairs=st.integers(1, 6), bytes=st.sampled_from([1, 300, 2_000]), chunk_events=st.just(3)),
)  # fmt: skip
def test_each_event_is_brought_once_and_what_is_missing_is_told(there: list[set[int]], limits: FoldLimits) -> None:
    replay = ranged(**{f"p{number}": (0, 31) for number in range(len(there))})
    read = [entries_of(*sorted(offsets), partition=f"log/{number}") for number, offsets in enumerate(there)]
    short = [number for number, offsets in enumerate(there) if 30 not in offsets]
    entries = [*merge_entries(read), *(empty_entry(f"log/{number}", 31) for number in short)]
    folds = fold_all(replay, entries, limits)
    ids = brought(folds)
    for number, offsets in enumerate(there):
        mine = [id for id in ids if id.startswith(f"log/{number}:")]
        assert mine == [f"log/{number}:{offset}" for offset in sorted(offsets)]
    end = folds[-1].after
    # What lies between two records of one read was never an event: a log forgets from its beginning.
    missing = sum(31 - (max(offsets) - min(offsets) + 1 if offsets else 0) for offsets in there)
    assert (end.events, end.lost) == (len(ids), missing)
    assert [fold.after.state for fold in folds][:-1] == [ReplayState.RUNNING] * (len(folds) - 1)
    assert end.state is ReplayState.DONE
    assert end.read == end.total == 31 * len(there)
    orders = [fold.after.order for fold in folds]
    assert orders == sorted(set(orders))


def test_what_is_brought_arrives_now() -> None:
    """Or else the upkeep of backlogs would take it for days old."""
    (fold,) = fold_all(ranged(p0=(0, 3)), entries_of(0, 1, 2), FoldLimits())
    assert {arrival for chunk in fold.folded.chunks for arrival in chunk.arrivals} == {ms(LATER)}
    assert [wake.due for wake in fold.folded.wakes] == [LATER + SUBSCRIPTION.timeout]


def test_time_topics_and_filter_choose() -> None:
    minute = timedelta(minutes=1)
    timed = replace(ranged(p0=(0, 9)), since=NOON + 2 * minute, until=NOON + 5 * minute)
    assert brought(fold_all(timed, entries_of(*range(9)), FoldLimits())) == ["log/0:2", "log/0:3", "log/0:4"]
    mixed = [*entries_of(0), *entries_of(1, topic="b"), *entries_of(2, kind="delete"), *entries_of(3, topic="c")]
    plain = ranged(p0=(0, 4))
    both = {"topics": ("a", "b")}
    assert brought(fold_all(plain, mixed, FoldLimits(), **both)) == ["log/0:0", "log/0:1", "log/0:2"]
    assert brought(fold_all(replace(plain, topics=("b",)), mixed, FoldLimits(), **both)) == ["log/0:1"]
    deletes = EventFilter(types=("delete",))
    assert brought(fold_all(plain, mixed, FoldLimits(), filter=deletes)) == ["log/0:2"]
    # Its own filter stands in the place of the subscription's.
    asked = replace(plain, filter=EventFilter(types=("update",)))
    assert brought(fold_all(asked, mixed, FoldLimits(), filter=deletes)) == ["log/0:0"]


@pytest.mark.parametrize(
    ("log", "begins", "begins_late"),
    [("id", 7, False), ("", 7, False), ("another", 4, True)],
    ids=["same", "unknown", "other"],
)
def test_one_that_waited_begins_where_it_was_told_in_the_same_log(log: str, begins: int, begins_late: bool) -> None:
    waiting = replace(REPLAY, state=ReplayState.WAITING, spans=(ReplaySpan("log/0", log, 7, 7, 7),))
    fixed = fix_range(waiting, {"log/0": LogRange(4, 20, "id", 4), "log/1": LogRange(0, 2, "id")})
    assert fixed.ranges_left == {"log/0": LogRange(begins, 20, "id"), "log/1": LogRange(0, 2, "id")}
    assert (fixed.is_fixed, fixed.begins_late) == (True, begins_late)


def test_a_log_that_has_forgotten_the_beginning_is_told() -> None:
    assert fix_range(REPLAY, {"log/0": LogRange(3, 9, "id", 3)}).begins_late
    assert not fix_range(REPLAY, {"log/0": LogRange(4, 9, "id", 3), "log/1": LogRange(0, 9, "id", 0)}).begins_late


def test_it_is_held_while_half_of_what_may_wait_does() -> None:
    limits = BacklogLimits(events=10, bytes=100)
    held = [has_to_be_held(Backlog(events, NOON, size), limits) for events, size in ((4, 49), (5, 0), (1, 50))]
    assert held == [False, True, True]
    assert not has_to_be_held(None, limits)


def test_a_large_event_behind_unwanted_ones_comes_once() -> None:
    replay, entries = ranged(p0=(0, 3)), [*entries_of(0, topic="b"), *entries_of(1), *entries_of(2)]
    assert brought(fold_all(replay, entries, FoldLimits(bytes=10))) == ["log/0:1", "log/0:2"]


def test_a_partition_that_is_not_told_any_more_is_told_as_missing() -> None:
    waiting = replace(REPLAY, spans=(ReplaySpan("log/0", "id", 7, 7, 7), ReplaySpan("log/1", "id", 7, 7, 7)))
    assert fix_range(waiting, {"log/0": LogRange(4, 20, "id", 4)}).begins_late


def test_a_flush_has_room_in_a_queue_that_is_half_full() -> None:
    small = limit_folds(BacklogLimits(events=1_000, bytes=2**20))
    assert (small.pairs, small.bytes) == (250, 2**18)
    assert limit_folds(BacklogLimits(events=10**6, bytes=2**30)) == FoldLimits()


def test_what_a_letter_tells_of_ends_where_the_log_does() -> None:
    """A log that has lost its end keeps its id."""
    letter = BusDeadLetter(
        id="l", queue=SUBSCRIPTION.queue, subscription=SUBSCRIPTION.id, namespace="n", key="k",
        reason=DeathReason.BACKLOG, died_at=NOON, sequence=0, count=9, size=9, first_at=NOON,
        offsets=(("log/0", 2), ("log/0", 9), ("log/1", 5), ("log/1", 6)), logs={"log/0": "id", "log/1": "id"},
    )  # fmt: skip
    replay = replay_of_letter(letter, 1, {"log/0": LogRange(0, 4, "id"), "log/1": LogRange(0, 5, "id")}, LATER)
    assert replay is not None
    assert (replay.ranges_left, replay.begins_late) == ({"log/0": LogRange(2, 4, "id")}, True)
    assert replay_of_letter(letter, 1, {"log/0": LogRange(0, 2, "id")}, LATER) is None
