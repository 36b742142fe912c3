"""Nobody gets all of what is bounded, and those who want much get the same."""

import pytest

from shared.domain.clock.shares import Shares


def fill(shares: Shares[str], keys: str) -> dict[str, int]:
    """Each key takes one more in turn, for as long as any may."""
    taken = dict.fromkeys(keys, 0)
    while admitted := [key for key in keys if shares.admits(key)]:
        for key in admitted:
            if shares.admits(key):
                shares.take(key)
                taken[key] += 1
    return taken


@pytest.mark.parametrize(
    ("keys", "greed", "each"), [("a", 1.0, 50), ("a", 4.0, 80), ("abc", 1.0, 25), ("abcd", 4.0, 23), ("ab", 0.5, 25)]
)
def test_keys_that_want_all_get_the_same_and_leave_something(keys: str, greed: float, each: int) -> None:
    """greed / (n * greed + 1) of a hundred, to within one."""
    shares = Shares[str](100, greed=greed)
    taken = fill(shares, keys)
    assert all(each <= count <= each + 1 for count in taken.values())
    assert len(shares) == sum(taken.values()) < 100


def test_who_comes_next_finds_something_free() -> None:
    shares = Shares[str](100, greed=1.0)
    fill(shares, "a")
    assert (shares.admits("a"), shares.admits("b")) == (False, True)
    assert fill(shares, "b")["b"] == 25


def test_what_is_given_back_is_free_again() -> None:
    shares = Shares[str](8, greed=1.0)
    assert fill(shares, "a") == {"a": 4}
    shares.give_back("a")
    assert (len(shares), shares.admits("a")) == (3, True)
    for _ in range(3):
        shares.give_back("a")
    assert len(shares) == 0
    assert fill(shares, "b") == {"b": 4}


def test_keys_that_have_nothing_are_forgotten() -> None:
    shares = Shares[int](10, greed=1.0)
    for key in range(1_000):
        shares.take(key)
        shares.take(key)
        shares.give_back(key)
        shares.give_back(key)
    assert len(shares._taken) == 0
