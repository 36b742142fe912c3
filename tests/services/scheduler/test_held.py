"""What is held until it is due, and what is taken out at once: bounded by number and by bytes."""

from datetime import UTC, datetime, timedelta

from services.scheduler.hold import Held, Hold
from shared.clock.rules.occurrences import once

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def held(seconds: int, size: int = 1) -> Held:
    return Held(once("schedule/ns/a", "g", NOON + seconds * SECOND, accepted_at=NOON, size=size), 0.0)


def taken(hold: Hold, seconds: int, most: int = 10, most_bytes: int = 100) -> list[int]:
    due = hold.due(NOON + seconds * SECOND, most, most_bytes)
    return [(each.occurrence.due - NOON) // SECOND for each in due]


def test_what_is_due_comes_out_in_its_order_and_in_groups() -> None:
    hold = Hold(10)
    for seconds in (5, 1, 3, 2, 4):
        hold.add(held(seconds))
    assert hold.next_due == NOON + SECOND
    assert (len(hold), hold.room) == (5, 5)
    assert taken(hold, 0) == []
    assert taken(hold, 4, most=3) == [1, 2, 3]
    assert taken(hold, 4, most=3) == [4]
    assert [each.occurrence.due for each in hold.clear()] == [NOON + 5 * SECOND]
    assert hold.next_due is None


def test_what_is_over_the_limit_is_shed_from_the_end() -> None:
    hold = Hold(3)
    for seconds in (5, 1, 3, 2, 4):
        hold.add(held(seconds))
    assert [each.occurrence.due for each in hold.take_excess()] == [NOON + 4 * SECOND, NOON + 5 * SECOND]
    assert hold.take_excess() == []
    assert taken(hold, 9) == [1, 2, 3]


def test_what_is_not_trusted_any_more_is_taken_out_from_the_front() -> None:
    hold = Hold(10)
    for seconds, trusted_until in ((1, 5.0), (2, 6.0), (3, 9.0), (4, 5.0)):
        hold.add(Held(held(seconds).occurrence, trusted_until))
    assert [each.trusted_until for each in hold.take_expired(6.0)] == [5.0, 6.0]
    assert hold.take_expired(6.0) == []
    assert taken(hold, 9) == [3, 4]


def test_first_attempts_of_schedules_may_be_early() -> None:
    hold = Hold(10, early=2 * SECOND)
    hold.add(held(5))
    hold.add(Held(once("batch/j/1", "g", NOON + 4 * SECOND, accepted_at=NOON), 0.0))
    assert hold.next_due == NOON + 3 * SECOND
    assert taken(hold, 3) == [5]
    assert taken(hold, 3) == []
    assert taken(hold, 4) == [4]


def test_a_group_of_large_messages_is_small_but_never_empty() -> None:
    hold = Hold(10)
    for seconds in range(6):
        hold.add(held(seconds, size=60))
    assert taken(hold, 9) == [0, 1]
    assert taken(hold, 9, most_bytes=1) == [2]
    assert taken(hold, 9, most_bytes=1_000) == [3, 4, 5]
