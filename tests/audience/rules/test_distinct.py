"""Different hashes are counted exactly up to the limit, and well beyond it, however often each of them comes."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.repeats import Distinct

hashes = st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20))


def packed(found: list[int]) -> bytes:
    return np.array(found, np.uint64).tobytes()


@given(st.lists(hashes))
def test_up_to_the_limit_the_count_is_that_of_a_set(pages: list[list[int]]) -> None:
    seen = Distinct(limit=10_000)
    for page in pages:
        seen.add(packed(page))
    assert seen.count == len({one for page in pages for one in page})


def test_the_limit_itself_is_counted_exactly_and_one_more_halves_what_is_looked_at() -> None:
    seen = Distinct(limit=5)
    seen.add(packed([1, 3, 5, 7, 9]))
    assert seen.count == 5
    seen = Distinct(limit=5)
    seen.add(packed([*range(10)]))
    assert (seen.count, len(seen._kept)) == (10, 5)


@pytest.mark.parametrize("truth", [5_000, 40_000, 300_000])
def test_beyond_the_limit_the_count_is_near_and_the_memory_bounded(truth: int) -> None:
    rand = random.Random(truth)
    things = [rand.getrandbits(64) for _ in range(truth)]
    seen = Distinct(limit=4_096)
    for _ in range(2):
        for start in range(0, truth, 10_000):
            seen.add(packed(things[start : start + 10_000]))
            assert len(seen._kept) <= 4_096
    # Four standard deviations of a sample of at least half the limit.
    assert seen.count == pytest.approx(truth, rel=4 / 2_048**0.5)
