"""What was read of the log comes into every queue that wants it once, in order, and within the limits of a flush."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.bus.rules.events import EVERYBODY, NOTICES, EventDraft, published_form, read_event, stamp
from shared.bus.rules.filters import Comparison, DataCondition, EventFilter, cost_of
from shared.bus.rules.folding import (
    BusFold,
    Collectors,
    DividedEvent,
    EventChunk,
    FoldLimits,
    LogEntry,
    fold,
    merge_entries,
    read_entries,
)
from shared.bus.rules.subscriptions import EventForm, EventSubscription, FormerChoice, SubscriptionStatus
from shared.core.documents import LogEnds, Position
from shared.core.instants import EPOCH, ms

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LIMITS = FoldLimits(pairs=9, bytes=2_000, chunks=5, chunk_events=3, chunk_bytes=700)
TOPICS = ("a", "b", "c", "nobody's")
ENTITIES = ("https://x/1", "https://x/2")


def subscription(number: int, *topics: str, **fields: object) -> EventSubscription:
    made = EventSubscription(
        id=f"{number:032x}", namespace="n", key=str(number), generation="g", callback="", topics=topics,
        created_at=NOON, updated_at=NOON,
    )  # fmt: skip
    return replace(made, **fields)


def collectors_of(*subscriptions: EventSubscription) -> Collectors:
    collectors = Collectors()
    collectors.learn(1, subscriptions, is_whole=True)
    return collectors


def record(topic: str, url: str = ENTITIES[0], *, at: int = ms(NOON), id: str = "e", data: str = "{}") -> bytes:
    return stamp(EventDraft("update", url, data=msgspec.Raw(data.encode())), topic=topic, id=id, at=at)


def entries_of(*records: bytes | None, partition: str = "log/0", first: int = 0) -> list[LogEntry]:
    offsets = list(range(first, first + len(records)))
    return read_entries(partition, records, offsets, first + len(records))


def fold_all(entries: Sequence[LogEntry], collectors: Collectors, limits: FoldLimits) -> Iterator[BusFold]:
    done, begun = 0, dict[str, DividedEvent]()
    while done < len(entries):
        folded = fold(entries[done:], collectors, now=NOON, limits=limits, begun=begun)
        assert folded.taken > 0 or folded.divided
        done += folded.taken
        begun = {name: event for name, event in begun.items() if name not in folded.reached} | folded.divided
        yield folded


def test_what_filters_cost_ends_a_fold() -> None:
    wanted = EventFilter(data=(DataCondition("/a", Comparison.EQ, "1" * 160),))
    collectors = collectors_of(subscription(1, "a", filter=wanted), subscription(2, "a"), subscription(3, "b"))
    assert (collectors.cost("a"), collectors.cost("b")) == (cost_of(wanted) + 1, 1)
    entries = entries_of(*(record("a", id=str(number)) for number in range(10)))
    folds = list(fold_all(entries, collectors, FoldLimits(cost=3 * collectors.cost("a"))))
    assert [folded.taken for folded in folds] == [3, 3, 3, 1]
    collectors.learn(2, [subscription(1, state=SubscriptionStatus.REMOVED)], is_whole=False)
    assert (collectors.cost("a"), collectors.cost("b")) == (1, 1)


subscriptions = st.lists(
    st.builds(
        lambda number, topics, form, types, seconds: subscription(
            number, *topics, form=form, filter=EventFilter(types=types), timeout_ms=seconds * 1000
        ),
        st.integers(1, 8),
        st.sets(st.sampled_from(TOPICS[:3])).map(sorted),
        st.sampled_from(EventForm),
        st.sampled_from([(), ("update",), ("delete",)]),
        st.integers(0, 3),
    ),
    unique_by=lambda made: made.id,
    max_size=8,
)
events = st.tuples(
    st.sampled_from(TOPICS), st.sampled_from(ENTITIES), st.integers(-500, 500), st.integers(0, 800) | st.just(0)
)
partitions = st.lists(st.lists(st.none() | events, max_size=12), max_size=4)


def read(drawn: list[list[tuple[str, str, int, int] | None]]) -> list[list[LogEntry]]:
    def made(id: str, event: tuple[str, str, int, int] | None) -> bytes | None:
        if event is None:
            return None
        topic, url, delay, size = event
        return record(topic, url, at=ms(NOON) + delay, id=id, data=f'"{"x" * size}"')

    return [
        entries_of(
            *(made(f"{number}-{place}", event) for place, event in enumerate(partition)),
            partition=f"log/{number}",
            first=number * 100,
        )
        for number, partition in enumerate(drawn)
    ]


@given(subscriptions, partitions)
def test_every_event_comes_into_each_queue_that_wants_it_once_and_in_order(
    made: list[EventSubscription], drawn: list[list[tuple[str, str, int, int] | None]]
) -> None:
    read_of = read(drawn)
    merged = merge_entries(read_of)
    brought: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    encoded: defaultdict[str, list[bytes]] = defaultdict(list)
    for folded in fold_all(merged, collectors_of(*made), LIMITS):
        for chunk in folded.chunks:
            brought[chunk.queue] += chunk.offsets
            encoded[chunk.queue] += chunk.events
    for each in made:
        wanted = [
            entry
            for entry in merged
            if (event := entry.event) is not None
            and event.topic in each.topics
            and (not each.filter.types or event.type in each.filter.types)
        ]
        assert brought.pop(each.queue, []) == [(entry.partition, entry.offset) for entry in wanted]
        is_native = each.form is EventForm.NATIVE
        forms = [entry.record if is_native else published_form(entry.event) for entry in wanted if entry.event]
        assert encoded[each.queue] == forms
    assert not brought
    for number, entries in enumerate(read_of):
        assert [entry for entry in merged if entry.partition == f"log/{number}"] == entries


@given(subscriptions, partitions)
def test_a_flush_keeps_its_limits_or_has_one_event_for_one_queue(
    made: list[EventSubscription], drawn: list[list[tuple[str, str, int, int] | None]]
) -> None:
    for folded in fold_all(merge_entries(read(drawn)), collectors_of(*made), LIMITS):
        within = folded.pairs <= LIMITS.pairs and folded.bytes <= LIMITS.bytes and len(folded.chunks) <= LIMITS.chunks
        assert within or folded.pairs == 1
        assert folded.pairs == sum(len(chunk.events) for chunk in folded.chunks)
        assert folded.bytes == sum(chunk.size for chunk in folded.chunks)
        for chunk in folded.chunks:
            assert len(chunk.events) == len(chunk.arrivals) == len(chunk.offsets)
            assert chunk.size == sum(map(len, chunk.events))
            assert len(chunk.events) <= LIMITS.chunk_events
            assert chunk.size <= LIMITS.chunk_bytes or len(chunk.events) == 1


@given(subscriptions, partitions)
def test_what_is_told_and_counted_is_what_was_brought(
    made: list[EventSubscription], drawn: list[list[tuple[str, str, int, int] | None]]
) -> None:
    read_of = read(drawn)
    by_queue = {each.queue: each for each in made}
    counts: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    reached: dict[str, int] = {}
    unreadable = 0
    for folded in fold_all(merge_entries(read_of), collectors_of(*made), LIMITS):
        chunks: defaultdict[str, list[EventChunk]] = defaultdict(list)
        for chunk in folded.chunks:
            chunks[chunk.queue].append(chunk)
        assert {wake.queue for wake in folded.wakes} == set(chunks)
        for wake in folded.wakes:
            first = min(arrival for chunk in chunks[wake.queue] for arrival in chunk.arrivals)
            timeout = by_queue[wake.queue].timeout
            assert wake.events == sum(len(chunk.events) for chunk in chunks[wake.queue])
            assert wake.due == (EPOCH + timedelta(milliseconds=first) + timeout if timeout else NOON)
        for topic, (n, size) in folded.counts.items():
            counts[topic] = (counts[topic][0] + n, counts[topic][1] + size)
        reached |= folded.reached
        unreadable += folded.unreadable
    everything = [entry for entries in read_of for entry in entries]
    for topic in TOPICS:
        sizes = [len(entry.record) for entry in everything if entry.event is not None and entry.event.topic == topic]
        assert counts[topic] == (len(sizes), sum(sizes))
    assert unreadable == sum(entry.event is None for entry in everything)
    assert reached == {entries[0].partition: entries[-1].next for entries in read_of if entries}


def test_partitions_are_merged_by_arrival_but_never_against_the_order_of_one() -> None:
    late_first = entries_of(record("a", at=300), record("a", at=100), partition="log/0")
    other = entries_of(record("a", at=200), record("a", at=400), partition="log/1")
    merged = merge_entries([late_first, other])
    assert [(entry.partition, entry.offset) for entry in merged] == [
        ("log/1", 0),
        ("log/0", 0),
        ("log/0", 1),
        ("log/1", 1),
    ]


def test_an_event_that_more_want_than_a_flush_has_chunks_is_divided() -> None:
    many = collectors_of(*(subscription(number, "a") for number in range(1, 10)), subscription(11, "b"))
    entries = entries_of(record("b"), record("a"), record("b"))
    flushes = list(fold_all(entries, many, LIMITS))
    assert [len(folded.chunks) for folded in flushes] == [1, 5, 5]
    assert [folded.taken for folded in flushes] == [1, 0, 2]
    assert [folded.reached for folded in flushes] == [{"log/0": 1}, {"log/0": 1}, {"log/0": 3}]
    assert sum(folded.counts.get("a", (0, 0))[0] for folded in flushes) == 1


def test_what_is_left_of_an_event_goes_to_those_who_want_it_then() -> None:
    """Who comes in between may have it or not; who stays has it once, and who leaves no more."""
    stay = [subscription(number, "a") for number in (1, 2, 3, 4, 5, 7, 8)]
    entries, before = entries_of(record("a")), collectors_of(*stay, subscription(9, "a"))
    first = fold(entries, before, now=NOON, limits=LIMITS)
    assert first.divided == {"log/0": DividedEvent(0, stay[4].queue)}
    after = collectors_of(*stay, subscription(0, "a"), subscription(6, "a"))
    last = fold(entries, after, now=NOON, limits=LIMITS, begun=first.divided)
    assert (last.taken, last.divided) == (1, {})
    assert [chunk.queue for chunk in last.chunks] == [subscription(n, "a").queue for n in (7, 8, 6)]
    elsewhere = {"log/0": DividedEvent(7, stay[4].queue)}
    assert fold(entries, collectors_of(stay[0]), now=NOON, limits=LIMITS, begun=elsewhere).pairs == 1


def test_records_of_others_move_the_position_only() -> None:
    forged = [b"", b"\xff", b"[1]", b'{"id": "x"}', b"{" * 10_000, b'{"at": 1e400}', None]
    folded = fold(entries_of(*forged, record("a")), collectors_of(subscription(1, "a")), now=NOON)
    assert folded.unreadable == len(forged)
    assert folded.pairs == 1
    assert folded.reached == {"log/0": len(forged) + 1}


@pytest.mark.parametrize("at", [-1, 2**63, 10**30, ms(NOON) + 86_400_000])
def test_an_arrival_that_cannot_be_is_that_of_the_fold_or_the_beginning(at: int) -> None:
    forged = record("a").replace(str(ms(NOON)).encode(), str(at).encode())
    assert read_event(forged) is not None
    folded = fold(entries_of(forged), collectors_of(subscription(1, "a", timeout_ms=5)), now=NOON)
    assert folded.chunks[0].arrivals == [0 if at < 0 else ms(NOON)]


def test_a_chunk_has_no_events_of_different_hours() -> None:
    """What is too old goes by whole chunks: after a long outage of fan-outs the young ones would go with the old."""
    arrivals = [ms(NOON) - minutes * 60_000 for minutes in (190, 130, 129, 60, 0)]
    entries = entries_of(*(record("a", at=at) for at in arrivals))
    (folded,) = fold_all(entries, collectors_of(subscription(1, "a")), FoldLimits())
    assert [chunk.arrivals for chunk in folded.chunks] == [arrivals[:2], arrivals[2:3], arrivals[3:]]


def test_positions_pass_over_offsets_without_a_record() -> None:
    entries = read_entries("log/0", [record("a"), record("a")], [3, 7], 9)
    assert [(entry.offset, entry.next) for entry in entries] == [(3, 7), (7, 9)]


def test_collectors_learn_what_has_changed() -> None:
    collectors = collectors_of(subscription(1, "a"), subscription(2, "a", "b"))
    event = read_event(record("a"))
    assert event is not None
    changed = [
        subscription(1, "b"),
        subscription(2, "a", state=SubscriptionStatus.SUSPENDED),
        subscription(3, "a", state=SubscriptionStatus.PAUSED),
    ]
    collectors.learn(5, changed, is_whole=False)
    assert collectors.version == 5
    assert [found.queue for found in collectors.find(event, "0", 0)] == [subscription(3).queue]
    collectors.learn(6, [subscription(4, "a")], is_whole=True)
    assert [found.queue for found in collectors.find(event, "0", 0)] == [subscription(4).queue]
    collectors.learn(7, [subscription(4, "a", state=SubscriptionStatus.REMOVED)], is_whole=False)
    assert collectors.find(event, "0", 0) == []


ENDS = LogEnds(id="1", log="now", offsets=(("log/0", 2), ("log/1", 0)))
DELETES = EventFilter(types=("delete",))


@pytest.mark.parametrize(
    ("topics", "wanted", "former", "expected"),
    [
        ((), EventFilter(), [("a", EventFilter(), 2)], [0, 1]),
        ((), EventFilter(), [("b", EventFilter(), 2)], []),
        ("a", DELETES, [("a", EventFilter(), 2)], [0, 1]),
        ("a", EventFilter(), [("a", DELETES, 2)], [2, 3]),
        ("a", EventFilter(), [("a", None, 3)], [3]),
        ("a", EventFilter(), [("a", EventFilter(), 1), ("a", None, 3)], [0, 3]),
        ("a", EventFilter(), [("b", None, 3)], [0, 1, 2, 3]),
    ],
)
def test_an_event_is_judged_by_the_choice_of_its_time(
    topics: tuple[str, ...],
    wanted: EventFilter,
    former: Sequence[tuple[str, EventFilter | None, int]],
    expected: Sequence[int],
) -> None:
    choices = tuple(
        FormerChoice(topics=(topic,), filter=chosen, ends=replace(ENDS, offsets=(("log/0", end),)))
        for topic, chosen, end in former
    )
    collectors = collectors_of(subscription(1, *topics, filter=wanted, former=choices))
    folded = fold(entries_of(*[record("a")] * 4), collectors, now=NOON)
    assert [offset for chunk in folded.chunks for _, offset in chunk.offsets] == expected


@pytest.mark.parametrize(
    ("position", "is_read"),
    [
        (Position(2, "now"), True),
        (Position(1, "now"), False),
        (Position(9, "before"), False),
        (Position(0, "next", left=("before", "now")), True),
    ],
)
def test_ends_are_read_once_their_log_is(position: Position, is_read: bool) -> None:
    assert ENDS.are_read({"log/0": position, "log/1": Position(0, position.log, position.left)}) is is_read
    assert not ENDS.are_read({"log/1": Position(0, "now")})


@pytest.mark.parametrize(
    ("audience", "seen_by"), [("token:a", "a"), ("token:b", "b"), (EVERYBODY, "ab"), ("", ""), ("token", "")]
)
def test_a_notice_comes_to_the_namespace_that_it_is_for(audience: str, seen_by: str) -> None:
    collectors = collectors_of(
        subscription(1, NOTICES, namespace="token:a"), subscription(2, NOTICES, namespace="token:b")
    )
    notice = stamp(EventDraft("x", "https://x/1", audience=audience), topic=NOTICES, id="1", at=ms(NOON))
    folded = fold(entries_of(notice), collectors, now=NOON)
    assert "".join("ab"[int(chunk.queue[:32], 16) - 1] for chunk in folded.chunks) == seen_by
