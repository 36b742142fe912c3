"""What is held until it is due, in turn between namespaces."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.hold import FairHold, Held
from shared.clock.rules.occurrences import once

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def held(namespace: str, key: int, seconds: int, size: int = 1) -> Held:
    owner = f"schedule/{namespace}/{key}"
    return Held(once(owner, "g", NOON + seconds * SECOND, accepted_at=NOON, size=size), 0.0)


def namespaces(taken: list[Held]) -> Counter[str]:
    return Counter(each.occurrence.owner.split("/")[1] for each in taken)


def test_a_namespace_that_is_late_with_much_takes_turns_with_the_others() -> None:
    hold = FairHold(100_000)
    for key in range(5_000):
        hold.add(held("worst", key, 0))
    for key in range(30):
        hold.add(held("other", key, 60))
    hold.add(held("third", 0, 60))
    taken = hold.due(NOON + 60 * SECOND, 100, 10**6)
    assert namespaces(taken) == {"worst": 69, "other": 30, "third": 1}
    assert (len(hold), hold.room) == (4_931, 95_069)
    assert hold.next_due == NOON
    assert namespaces(hold.due(NOON + 60 * SECOND, 10_000, 10**6)) == {"worst": 4_931}
    assert not hold.due(NOON + 60 * SECOND, 10, 10)
    assert hold.next_due is None


def test_each_namespace_keeps_its_order_and_what_is_not_due_stays() -> None:
    hold = FairHold(100)
    for key, seconds in enumerate((5, 1, 9, 3)):
        hold.add(held("a", key, seconds))
    hold.add(held("b", 0, 2))
    assert hold.next_due == NOON + SECOND
    taken = [each.occurrence.due for each in hold.due(NOON + 5 * SECOND, 10, 100)]
    assert taken == [NOON + each * SECOND for each in (1, 3, 5, 2)]
    assert hold.next_due == NOON + 9 * SECOND
    assert len(hold.clear()) == 1
    assert len(hold) == 0
    assert hold.next_due is None


def test_who_has_a_quarter_is_a_crowd_and_has_smaller_groups_beside_others() -> None:
    hold = FairHold(400)
    for key in range(99):
        hold.add(held("worst", key, 0))
    hold.add(held("other", 0, 9))
    assert (hold.crowds, hold.is_crowded) == (set(), False)
    hold.add(held("worst", 99, 0))
    assert (hold.crowds, hold.is_crowded) == ({"schedule/worst"}, True)
    assert len(hold.due(NOON, 80, 10**6)) == 10
    assert (hold.crowds, hold.is_crowded) == (set(), False)
    assert len(hold.due(NOON, 80, 10**6)) == 80


def test_alone_a_crowd_has_whole_groups() -> None:
    hold = FairHold(400)
    for key in range(300):
        hold.add(held("worst", key, 0))
    assert (hold.crowds, hold.is_crowded) == ({"schedule/worst"}, False)
    assert len(hold.due(NOON, 80, 10**6)) == 80
    assert hold.crowds == {"schedule/worst"}
    hold.clear()
    assert not hold.crowds


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=80),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30), st.integers(1, 30)), max_size=8),
)
def test_each_comes_out_once_when_it_is_due_and_groups_are_full(
    added: list[tuple[str, int]], asked: list[tuple[int, int, int]]
) -> None:
    hold, kept = FairHold(1_000), Counter(NOON + seconds * SECOND for _, seconds in added)
    for key, (namespace, seconds) in enumerate(added):
        hold.add(held(namespace, key, seconds))
    for seconds, most, most_bytes in [*asked, (9, 1_000, 10**6)]:
        now = NOON + seconds * SECOND
        ready = sum(count for due, count in kept.items() if due <= now)
        taken = Counter(each.occurrence.due for each in hold.due(now, most, most_bytes))
        assert taken.total() == min(ready, most, most_bytes)
        assert taken <= kept
        kept -= taken
        assert (len(hold), hold.next_due) == (kept.total(), min(kept, default=None))
    assert not kept
