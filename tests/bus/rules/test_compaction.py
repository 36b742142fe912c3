"""Compaction keeps every event in its order, in chunks within their limits."""

import itertools
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from shared.bus.rules.cutting import (
    Backlog,
    BacklogLimits,
    ChunkHead,
    QueuedChunk,
    choose_small,
    choose_surplus,
    is_worth_it,
    merge_chunks,
)
from shared.bus.rules.folding import MOST_APART, FoldLimits

MOST_APART_MS = MOST_APART // timedelta(milliseconds=1)
LIMITS = FoldLimits(chunk_events=5, chunk_bytes=40)

events = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 2 * MOST_APART_MS)), min_size=1, max_size=4)
chunks = st.lists(st.tuples(events, st.booleans()), max_size=12)


def made(number: int, events: list[tuple[int, int]], *, is_cut: bool) -> QueuedChunk:
    return QueuedChunk(
        id=f"q/{number:03}",
        queue="q",
        events=tuple(b"x" * size for size, _ in events),
        arrivals=tuple(at for _, at in events),
        offsets=tuple((f"log/{number}", index) for index in range(len(events))),
        skip=len(events) - 1 if is_cut else 0,
    )


@given(chunks)
def test_every_event_stays_in_its_order_and_chunks_within_their_limits(
    given: list[tuple[list[tuple[int, int]], bool]],
) -> None:
    before = [made(number, events, is_cut=is_cut) for number, (events, is_cut) in enumerate(given)]
    after = merge_chunks(before, LIMITS)
    for field in ("events", "arrivals", "offsets"):
        stays = [item for chunk in before for item in getattr(chunk, field)[chunk.skip :]]
        assert [item for chunk in after for item in getattr(chunk, field)] == stays
    ids = [chunk.id for chunk in after]
    assert ids == sorted(set(ids) & {chunk.id for chunk in before})
    for first, second in itertools.pairwise(after):
        assert not fit(first, second)
    for chunk in after:
        assert fit(chunk) or chunk.id in {each.id for each in before if not fit(each)}
        assert chunk.skip == 0


def fit(*joined: QueuedChunk) -> bool:
    """Whether these, without what is cut, may be one chunk: a naive reading of the limits."""
    events = [event for chunk in joined for event in chunk.events[chunk.skip :]]
    arrivals = [arrival for chunk in joined for arrival in chunk.arrivals[chunk.skip :]]
    is_near = max(arrivals) - min(arrivals) <= MOST_APART_MS
    return len(events) <= LIMITS.chunk_events and len(b"".join(events)) <= LIMITS.chunk_bytes and is_near


def test_small_ones_that_stand_together_are_chosen() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)

    def choose(*sizes: int, most: int = 100) -> list[str]:
        heads = [ChunkHead(id=str(i), queue="q", n=1, bytes=size, first_at=at) for i, size in enumerate(sizes)]
        return [head.id for head in choose_small(heads, most, LIMITS)]

    assert choose(1, 2, 3) == ["0", "1", "2"]
    assert choose(30, 1, 30, 2, 3, 30, 4) == ["3", "4"]
    assert choose(1, 2, 3, most=3) == ["0", "1"]
    assert choose(1) == choose(30, 30) == choose() == []


def test_what_is_few_or_full_is_left() -> None:
    assert is_worth_it(200, 200, 2_000)
    assert not is_worth_it(199, 199, 1_990)
    assert not is_worth_it(1_000, 500_000, 2_000)
    assert not is_worth_it(1_000, 1_000, 1_000 * 256 * 2**10)


def test_what_a_replay_brought_stays_apart() -> None:
    """A dead letter of a loss names where each partition's events begin and end: those of one source lie together."""
    at = datetime(2030, 1, 1, tzinfo=UTC)
    ids = ["q/1/000000/t/0:5", "q/2/000000/t/0:6", "q/3/000000~1/t/0:1", "q/4/000000~1/t/0:2", "q/5/000000/t/0:7"]
    heads = [ChunkHead(id=id, queue="q", n=1, bytes=1, first_at=at) for id in ids]
    assert [head.source for head in heads] == ["", "", "1", "1", ""]
    assert [head.id for head in choose_small(heads, 100, LIMITS)] == ids[:2]
    assert [head.id for head in choose_small(heads[1:], 100, LIMITS)] == ids[2:4]
    surplus = choose_surplus(heads, Backlog(5, at, 5), BacklogLimits(1, 100), expired=at)
    assert surplus is not None
    assert [head.id for head in surplus.heads] == ids[:2]
