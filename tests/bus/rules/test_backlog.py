"""Which events are lost of a queue that is beyond its limits."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from shared.bus.rules.cutting import Backlog, BacklogLimits, ChunkHead, choose_surplus
from shared.bus.rules.deliveries import DeathReason
from shared.bus.rules.folding import MOST_APART

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SIZES = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 500)), min_size=1, max_size=40)


def heads_of(sizes: list[tuple[int, int]]) -> list[ChunkHead]:
    return [
        ChunkHead(id=f"{number:03}", queue="q", n=n, bytes=size, first_at=NOON + number * SECOND)
        for number, (n, size) in enumerate(sizes)
    ]


def backlog_of(heads: list[ChunkHead]) -> Backlog:
    return Backlog(sum(head.n for head in heads), heads[0].first_at, sum(head.bytes for head in heads))


@given(SIZES, st.integers(1, 1_000), st.integers(1, 10_000))
def test_the_oldest_go_until_the_rest_is_within_the_limits_and_none_more(
    sizes: list[tuple[int, int]], events: int, size: int
) -> None:
    heads, limits = heads_of(sizes), BacklogLimits(events, size)
    surplus = choose_surplus(heads, backlog_of(heads), limits, expired=NOON)
    gone = 0 if surplus is None else len(surplus.heads)
    assert surplus is None or (surplus.reason, list(surplus.heads)) == (DeathReason.BACKLOG, heads[:gone])
    assert (surplus is not None) == backlog_of(heads).is_beyond(limits, NOON)
    rest = heads[gone:]
    assert not rest or not backlog_of(rest).is_beyond(limits, NOON)
    if gone:
        assert backlog_of(heads[gone - 1 :]).is_beyond(limits, NOON)


@given(SIZES, st.integers(0, 40))
def test_what_is_too_old_goes_whatever_waits(sizes: list[tuple[int, int]], old: int) -> None:
    heads, limits = heads_of(sizes), BacklogLimits(10**6, 10**9)
    surplus = choose_surplus(heads, backlog_of(heads), limits, expired=NOON + MOST_APART + old * SECOND)
    if old == 0:
        assert surplus is None
    else:
        assert surplus is not None
        assert (surplus.reason, list(surplus.heads)) == (DeathReason.AGE, heads[:old])
