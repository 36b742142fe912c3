"""Places: how many there are, who gets one, who yields, and how calls are divided."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.messages.rules.places import (
    FIRST_IN_LINE,
    AccountPlace,
    Places,
    Rank,
    batch_size,
    capacity,
    count,
    drop_expired,
    enter,
    floor,
    have_one_yield,
    is_behind,
    last_rank,
    leave,
    place_of,
    renew,
    room,
    take_over,
)


def rank(created: int, had: float = 0.0) -> Rank:
    return (had, created, f"job-{created}")


def place(holder: str, created: int = 1, **fields: object) -> AccountPlace:
    return AccountPlace(**{"holder": holder, "rank": rank(created), "until_us": 100} | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rate", "max_in_flight", "places"),
    [(0.01, 1, 1), (9.9, 20, 1), (10, 20, 2), (501, 250, 2), (2_500, 1_000, 3), (10_000, 1_000, 10), (10_000, 5, 5)],
)
def test_there_are_few_places(rate: float, max_in_flight: int, places: int) -> None:
    assert capacity(rate, max_in_flight) == places


@pytest.mark.parametrize(("rate", "size"), [(0.01, 20), (1, 60), (5, 300), (100, 1_000)])
def test_a_batch_is_about_a_minute(rate: float, size: int) -> None:
    assert batch_size(rate) == size


def test_who_has_a_place_keeps_it_and_a_full_house_takes_nobody() -> None:
    places = enter((place("a"),), "b", rank(2), until_us=5, most=2)
    assert places is not None
    assert [one.holder for one in places] == ["a", "b"]
    assert enter(places, "b", rank(2), until_us=9, most=2) == places
    assert enter(places, "c", rank(3), until_us=9, most=2) is None
    assert leave(places, "a") == places[1:]


def test_who_ends_takes_no_room_from_others_and_need_not_yield() -> None:
    places = renew((place("a", 9), place("b", 5)), "a", until_us=9, calls=3, ends=True)
    assert count(places) == 1
    entered = enter(places, "c", rank(2), until_us=5, most=2)
    assert entered is not None
    assert enter(entered, "d", rank(2), until_us=5, most=2) is None
    assert [one.holder for one in have_one_yield(entered, rank(1)) if one.yields] == ["b"]
    assert room(entered, "c", wanted=9, max_in_flight=10) == 5, "c and b share what there is"
    assert room(entered, "c", wanted=9, max_in_flight=4) == 1, "and a has its calls until they are made"


def test_the_last_in_order_yields_to_an_older_job() -> None:
    places = have_one_yield((place("a", 3), place("b", 5), place("c", 4)), rank(2))
    assert [one.holder for one in places if one.yields] == ["b"]


def test_nobody_yields_to_a_younger_job_or_twice() -> None:
    places: Places = (place("a", 3), place("b", 5))
    assert have_one_yield(places, rank(7)) == places
    yielding = have_one_yield(places, rank(1))
    assert have_one_yield(yielding, rank(1)) == yielding
    assert have_one_yield((), rank(1)) == ()


def test_a_batch_of_the_same_job_does_not_push_its_sibling_out() -> None:
    places = (place("a", 3), place("b", 3))
    assert have_one_yield(places, rank(3)) == places


def test_places_of_the_gone_are_free() -> None:
    places = (place("a", until_us=5), place("b", until_us=6))
    assert drop_expired(places, 5) == places[1:]
    assert drop_expired(places, 7, keep="a") == places[:1]


def test_the_calls_of_whoever_had_a_place_count_until_its_time_is_over() -> None:
    before: Places = (place("a", 3, calls=6, yields=True), place("b", 5, until_us=200))
    after = take_over(before, "a", until_us=200)
    mine = place_of(after, "a")
    assert mine is not None
    assert (mine.calls, mine.until_us, mine.yields, mine.rank) == (0, 200, True, rank(3))
    assert count(after) == 2, "the former one needs no room any more"
    assert room(after, "a", wanted=9, max_in_flight=10) == 4
    assert sum(one.calls for one in take_over(after, "a", until_us=300)) == 6, "nothing was granted in between"
    assert room(drop_expired(after, 100), "a", wanted=9, max_in_flight=10) == 5


def test_who_was_overtaken_has_no_place_and_gives_up_none() -> None:
    """A worker that was stopped, and wakes up when the batch has another turn."""
    before: Places = (place("a", 3, calls=6, turn=1), place("b", 5))
    after = take_over(before, "a", until_us=200, turn=2)
    assert place_of(after, "a", turn=1) is None
    assert place_of(after, "a", turn=2) is not None
    assert leave(after, "a", turn=1) == after
    assert take_over(after, "a", until_us=300, turn=1) == after
    assert [one.holder for one in leave(after, "a", turn=2)] == ["b", "a/100"]


def test_a_place_that_is_left_late_is_the_next_turns() -> None:
    """The batch was put back, and queued again, before its worker came to let go of the place."""
    queued = enter((place("a", 3, turn=1),), "a", rank(3), until_us=200, most=2, turn=2)
    assert queued is not None
    assert leave(queued, "a", turn=1) == queued
    assert enter(queued, "a", rank(3), until_us=200, most=2, turn=1) == queued, "who looked earlier changes nothing"


def test_who_comes_before_is_let_pass_unless_it_needs_no_more() -> None:
    before: Places = (place("a", 3), place("b", 3), place("c", 5))
    assert [is_behind(before, holder) for holder in "abcd"] == [False, False, True, False]
    assert is_behind(renew(before, "a", until_us=5, calls=1, ends=True), "c")
    for holder in "ab":
        before = renew(before, holder, until_us=5, calls=1, ends=True)
    assert not is_behind(before, "c")


def test_nobody_takes_over_what_nobody_has() -> None:
    assert take_over((place("a"),), "b", until_us=5) == (place("a"),)


def test_single_messages_have_a_call_however_few_there_are() -> None:
    places: Places = (place("a", calls=1), AccountPlace(holder="singles", rank=FIRST_IN_LINE, until_us=100))
    assert room(places, "singles", wanted=4, max_in_flight=1) == 0
    assert room(places, "a", wanted=4, max_in_flight=1) == 0, "so its call is free next"
    places = renew(places, "a", until_us=100, calls=0)
    assert room(places, "singles", wanted=4, max_in_flight=1) == 1
    others: Places = (*places, AccountPlace(holder="before", rank=FIRST_IN_LINE, until_us=100))
    assert room(others, "singles", wanted=4, max_in_flight=1) == 1, "whoever came before has none either"


def test_only_who_still_sends_sets_the_order() -> None:
    singles = AccountPlace(holder="singles", rank=FIRST_IN_LINE, until_us=100)
    ending = replace(place("c", rank=rank(9, 2.0)), ends=True)
    before: Places = (place("a", rank=rank(3, 7.0)), place("b", rank=rank(5, 4.0)), ending)
    assert last_rank(before) == rank(3, 7.0)
    assert floor((singles, *before)) == 2.0
    assert (last_rank((ending,)), floor((singles,))) == (None, None)


def test_who_yields_and_ends_keeps_nobody_from_yielding() -> None:
    places: Places = (place("a", 3), replace(place("b", 5), yields=True, ends=True))
    assert [one.holder for one in have_one_yield(places, rank(1)) if one.yields] == ["a", "b"]


@given(st.integers(0, 2**32), st.integers(1, 50))
def test_calls_under_way_are_never_more_than_allowed(seed: int, most: int) -> None:
    """Holders go on by what they had before until they know that they have less, and some never hear of it. People
    change what is allowed, and workers are replaced while their calls go on."""
    random = Random(seed)
    places: Places = tuple(place(name) for name in "abcd")
    may_have, under_way, left = dict.fromkeys("abcd", 0), dict.fromkeys("abcd", 0), 0
    for _ in range(50):
        if random.random() < 0.1:
            most = random.randint(1, 50)
        holder, taken = random.choice("abcd"), sum(one.calls for one in places)
        if random.random() < 0.1:
            places = take_over(places, holder, until_us=9)
            left += under_way[holder]
            may_have[holder] = under_way[holder] = 0
        claimed = max(may_have[holder], under_way[holder])
        calls = room(places, holder, wanted=random.randint(0, 60), max_in_flight=most)
        under_way[holder] = random.randint(0, claimed)
        places = renew(places, holder, until_us=7, calls=max(calls, claimed), ends=random.random() < 0.2)
        may_have[holder] = calls if random.random() < 0.8 else may_have[holder]
        under_way[holder] = random.randint(under_way[holder], max(may_have[holder], under_way[holder]))
        assert sum(one.calls for one in places) <= max(most, taken)
        assert left + sum(under_way.values()) <= sum(one.calls for one in places)
    assert all(one.calls >= under_way[one.holder] for one in places if one.holder in under_way)
    assert place_of(places, "z") is None
