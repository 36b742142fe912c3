"""Places: how many there are, who gets one, who yields, and how calls are divided."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.messages.places import (
    AccountPlace,
    Places,
    Rank,
    batch_size,
    capacity,
    count,
    drop_expired,
    enter,
    have_one_yield,
    leave,
    place_of,
    renew,
    room,
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


@given(st.integers(0, 2**32), st.integers(1, 50))
def test_calls_under_way_are_never_more_than_allowed(seed: int, most: int) -> None:
    """Holders go on by what they had before until they know that they have less, and some never hear of it."""
    random = Random(seed)
    places: Places = tuple(place(name) for name in "abcd")
    may_have, under_way = dict.fromkeys("abcd", 0), dict.fromkeys("abcd", 0)
    for _ in range(50):
        holder = random.choice("abcd")
        asked = under_way[holder]
        calls = room(places, holder, wanted=random.randint(0, 60), max_in_flight=most, under_way=asked)
        under_way[holder] = random.randint(0, max(may_have[holder], asked))
        may_be = max(may_have[holder], asked)
        places = renew(places, holder, until_us=7, calls=max(calls, may_be), ends=random.random() < 0.2)
        may_have[holder] = calls if random.random() < 0.8 else may_have[holder]
        under_way[holder] = random.randint(under_way[holder], max(may_have[holder], under_way[holder]))
        assert sum(under_way.values()) <= most
        assert sum(one.calls for one in places) <= most
    assert all(one.calls >= under_way[one.holder] for one in places)
    assert place_of(places, "z") is None
