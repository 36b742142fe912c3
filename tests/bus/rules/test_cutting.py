"""Cutting keeps every event once and in its order, and a delivery has no more than it may."""

from datetime import timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.bus.rules.cutting import ChunkHead, CutRules, QueueCut, QueuedChunk, choose_chunks, cut, is_due
from shared.bus.rules.deliveries import delivery_id
from shared.core.instants import EPOCH, ms

QUEUE = "a" * 32 + ".g"
NOW = EPOCH + timedelta(seconds=1_000)

rules = st.builds(
    CutRules,
    max_events=st.integers(1, 8),
    max_bytes=st.integers(1, 60),
    timeout=st.integers(0, 500).map(lambda seconds: timedelta(seconds=seconds)),
    deliveries=st.integers(1, 6),
)


@st.composite
def queues(draw: st.DrawFn) -> list[QueuedChunk]:
    sizes = draw(st.lists(st.integers(1, 9), max_size=8))
    chunks, offset = [], 0
    for number, size in enumerate(sizes):
        lengths = draw(st.lists(st.integers(1, 20), min_size=size, max_size=size))
        arrivals = draw(st.lists(st.integers(0, ms(NOW)), min_size=size, max_size=size))
        chunks.append(
            QueuedChunk(
                id=f"{QUEUE}/{number:013d}",
                queue=QUEUE,
                events=tuple(f"{offset + at}".encode().ljust(length, b" ") for at, length in enumerate(lengths)),
                arrivals=tuple(arrivals),
                offsets=tuple(("0", offset + at) for at in range(size)),
                skip=draw(st.integers(0, size - 1)),
            )
        )
        offset += size
    return chunks


def events_of(chunks: list[QueuedChunk]) -> list[bytes]:
    return [event for chunk in chunks for event in chunk.events[chunk.skip :]]


def apply(chunks: list[QueuedChunk], made: QueueCut) -> list[QueuedChunk]:
    """What is stored once this is cut."""
    shortened = {} if made.shortened is None else {made.shortened.id: made.shortened.skip}
    return [replace(c, skip=shortened.get(c.id, c.skip)) for c in chunks if c.id not in made.used]


def head_of(chunk: QueuedChunk) -> ChunkHead:
    rest = chunk.events[chunk.skip :]
    first_at = EPOCH + timedelta(milliseconds=min(chunk.arrivals[chunk.skip :]))
    return ChunkHead(id=chunk.id, queue=QUEUE, n=len(rest), bytes=sum(map(len, rest)), first_at=first_at)


@given(queues(), rules, st.booleans())
def test_every_event_goes_once_and_in_its_order(chunks: list[QueuedChunk], rules: CutRules, more: bool) -> None:
    before, delivered, sequence = events_of(chunks), list[bytes](), 4
    while (made := cut(QUEUE, chunks, rules, sequence=sequence, now=NOW, more=more)).deliveries:
        assert [each.sequence for each in made.deliveries] == [sequence + at + 1 for at in range(len(made.deliveries))]
        assert all(each.id == delivery_id(QUEUE, each.sequence) for each in made.deliveries)
        sequence += len(made.deliveries)
        delivered += [event for each in made.deliveries for event in each.events]
        chunks = apply(chunks, made)
        assert made.left == len(events_of(chunks))
        if made.shortened is not None:
            (head,) = (head_of(chunk) for chunk in chunks if chunk.id == made.shortened.id)
            assert (head.n, head.bytes, head.first_at) == (
                made.shortened.n,
                made.shortened.bytes,
                made.shortened.first_at,
            )
    assert delivered + events_of(chunks) == before
    assert made.used == ()


@given(queues(), rules)
def test_limits_hold_and_a_delivery_counts_what_it_has(chunks: list[QueuedChunk], rules: CutRules) -> None:
    made = cut(QUEUE, chunks, rules, sequence=0, now=NOW)
    assert len(made.deliveries) <= rules.deliveries
    places = [offset for chunk in chunks for offset in chunk.offsets[chunk.skip :]]
    assert [offset for each in made.deliveries for offset in each.offsets] == places[: made.events]
    for each in made.deliveries:
        assert 1 <= each.count == len(each.events) == len(each.offsets) <= rules.max_events
        assert each.count == 1 or len(each.body) <= rules.max_bytes
        assert each.size == sum(map(len, each.events))
    for one, other in pairwise(made.deliveries):
        full = one.count == rules.max_events or len(one.body) + 1 + len(other.events[0]) > rules.max_bytes
        assert full or one.first_at + rules.timeout <= NOW


@given(queues(), rules)
def test_what_stays_is_neither_full_nor_old(chunks: list[QueuedChunk], rules: CutRules) -> None:
    rules = replace(rules, deliveries=1_000)
    made = cut(QUEUE, chunks, rules, sequence=0, now=NOW)
    rest = apply(chunks, made)
    left = events_of(rest)
    if not left:
        assert made.next_due is None
        return
    arrivals = [arrival for chunk in rest for arrival in chunk.arrivals[chunk.skip :]]
    assert made.next_due == EPOCH + timedelta(milliseconds=min(arrivals)) + rules.timeout > NOW
    assert len(left) < rules.max_events


@given(queues(), rules)
def test_what_the_heads_tell_is_what_is_cut(chunks: list[QueuedChunk], rules: CutRules) -> None:
    heads = [head_of(chunk) for chunk in chunks]
    made = cut(QUEUE, chunks, rules, sequence=0, now=NOW)
    assert is_due(heads, rules, NOW) == bool(made.deliveries)
    if is_due(heads, rules, NOW):
        chosen = {head.id for head in choose_chunks(heads, rules, most_bytes=30)}
        some = [chunk for chunk in chunks if chunk.id in chosen]
        assert some == chunks[: len(some)]
        assert cut(QUEUE, some, rules, sequence=0, now=NOW, more=len(some) < len(chunks)).deliveries
