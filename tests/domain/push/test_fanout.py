"""Fan-out is uniform, independent between jobs and purposes, and never changes."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.push import fanout
from tests.domain.push import careful

JOB = "1c9a2f0e-5d3b-4c58-9d53-0f6d2f1f7c11"
# Upper 0.1 % points of chi-square: the inputs are fixed, so a test either always passes or always fails.
CHI_SQUARE = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 6: 22.46, 7: 24.32, 8: 26.12}

seq_ids = st.integers(-(2**63), 2**63 - 1)
keys = st.integers(0, 2**64 - 1)


def chi_square(counts: list[int]) -> float:
    """How far the counts are from being equal."""
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 for count in counts) / expected


def test_golden_choices() -> None:
    """The published way of choosing: a change here would send other templates on a retry across releases."""
    key = fanout.choice_key(JOB, "template")
    assert key == 0x3C06EFD40DB7ADB3
    assert (
        "".join(careful.pick("abc", key, seq_id) for seq_id in range(40)) == "aaabaabbbbacabcaaacabbabbacbacbabacbcabc"
    )


def test_mixing_is_splitmix64() -> None:
    """Seeded with 0, the published generator begins with these numbers."""
    first = [careful.mix(0, position) for position in (1, 2, 3)]
    assert first == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize("names", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("stride", [1, 2, 7, 1000, 2**32])
def test_uniform_over_any_stride_of_ids(names: int, stride: int) -> None:
    key = fanout.choice_key(JOB, "template")
    counts = Counter(fanout.picks(names, key, np.arange(5, 5 + 20_000 * stride, stride)).tolist())
    assert chi_square([counts[place] for place in range(names)]) < CHI_SQUARE[names - 1]


@pytest.mark.parametrize(
    ("one", "other"),
    [((JOB, "template"), (JOB[:-1] + "2", "template")), ((JOB, "template"), (JOB, "fake token"))],
    ids=["two jobs", "two purposes"],
)
def test_choices_are_independent(one: tuple[str, str], other: tuple[str, str]) -> None:
    pairs = Counter(
        (careful.pick("ab", fanout.choice_key(*one), seq_id), careful.pick("abc", fanout.choice_key(*other), seq_id))
        for seq_id in range(30_000)
    )
    assert chi_square([pairs[pair] for pair in product("ab", "abc")]) < 20.52  # 5 degrees of freedom


@given(key=keys, ids=st.lists(seq_ids, unique=True, max_size=50))
def test_mixing_never_collides(key: int, ids: list[int]) -> None:
    mixed = {careful.mix(key, seq_id) for seq_id in ids}
    assert len(mixed) == len(ids)
    assert all(0 <= number < 2**64 for number in mixed)


@given(names=st.lists(st.text(), min_size=1, max_size=5), key=keys, ids=st.lists(seq_ids, max_size=20))
def test_many_are_picked_as_one(names: list[str], key: int, ids: list[int]) -> None:
    picked = fanout.picks(len(names), key, np.array(ids, np.int64))
    assert [names[place] for place in picked.tolist()] == [careful.pick(names, key, seq_id) for seq_id in ids]
