"""Who is held out: as many as the share says, and always the same."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.push.rules.choices import held_out

USERS = st.sets(st.text(min_size=1, max_size=5), max_size=60)
HUNDREDTHS = st.integers(1, 99)


@given(USERS, HUNDREDTHS)
def test_by_rank_the_share_is_exact_and_rounded_up(users: set[str], hundredths: int) -> None:
    chosen = held_out(users, "job", hundredths / 100, by_rank=True)
    assert chosen <= users
    assert len(chosen) == ceil(Fraction(hundredths, 100) * len(users))


@pytest.mark.parametrize(("share", "count", "held"), [(0.2, 10, 2), (0.4, 10, 4), (0.07, 100, 7), (0.01, 1, 1)])
def test_the_published_examples(share: float, count: int, held: int) -> None:
    assert len(held_out([f"u{n}" for n in range(count)], "job", share, by_rank=True)) == held


def test_the_same_users_are_held_out_in_every_release() -> None:
    # A batch that is tried again must come out as before.
    users = [f"u{n}" for n in range(20)]
    assert sorted(held_out(users, "job", 0.25, by_rank=True)) == ["u10", "u17", "u18", "u5", "u7"]
    assert sorted(held_out(users, "job", 0.25, by_rank=False)) == ["u17", "u18", "u7"]


@given(USERS, USERS, HUNDREDTHS)
def test_by_place_a_user_fares_alike_in_every_company(one: set[str], other: set[str], hundredths: int) -> None:
    share = hundredths / 100
    apart = held_out(one, "job", share, by_rank=False) | held_out(other, "job", share, by_rank=False)
    assert held_out(one | other, "job", share, by_rank=False) == apart


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_by_place_the_share_is_within_a_percentage_point(share: float) -> None:
    users = [f"user-{n}" for n in range(100_000)]
    assert abs(len(held_out(users, "job", share, by_rank=False)) / len(users) - share) < 0.01


def test_jobs_hold_out_different_users() -> None:
    users = [f"user-{n}" for n in range(1_000)]
    one, other = (held_out(users, job, 0.5, by_rank=True) for job in ("a", "b"))
    assert 150 < len(one & other) < 350
