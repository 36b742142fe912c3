"""Nobody gets all of what is bounded, and those who want much get the same."""

from hypothesis import given
from hypothesis import strategies as st

from shared.core.rates import Shares


@given(st.lists(st.sampled_from("abc")), st.sampled_from([1.0, 3.0]))
def test_whoever_comes_next_finds_room(wishes: list[str], greed: float) -> None:
    shares: Shares[str] = Shares(40, greed=greed)
    for key in wishes:
        if shares.admits(key):
            shares.take(key)
    assert len(shares) < 40
    assert shares.admits("new")


def test_what_many_want_is_shared_alike() -> None:
    shares: Shares[str] = Shares(200, greed=3)
    held = dict.fromkeys("abc", 0)
    for _ in range(200):
        for key in held:
            if shares.admits(key):
                shares.take(key)
                held[key] += 1
    assert max(held.values()) - min(held.values()) <= 1
    assert 175 <= len(shares) < 200
    for key, count in held.items():
        for _ in range(count):
            shares.give_back(key)
    alone = 0
    while shares.admits("a"):
        shares.take("a")
        alone += 1
    assert alone == 150


def test_what_is_given_back_is_free_again() -> None:
    shares: Shares[str] = Shares(8, greed=1.0)
    for _ in range(4):
        assert shares.admits("a")
        shares.take("a")
    assert (len(shares), shares.admits("a"), shares.admits("b")) == (4, False, True)
    shares.give_back("a")
    assert (len(shares), shares.admits("a")) == (3, True)


def test_keys_that_have_nothing_are_forgotten() -> None:
    shares: Shares[int] = Shares(10, greed=1.0)
    for key in range(1_000):
        shares.take(key)
        shares.take(key)
        shares.give_back(key)
        assert shares._taken.keys() == {key}
        shares.give_back(key)
    assert len(shares._taken) == 0
