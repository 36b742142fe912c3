"""How keys become cuts, and cuts of two statements one row of them."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.devices import Cut, cut_keys, merge_cuts

KEYS = st.lists(st.integers(-5, 40), max_size=60).map(sorted)


@given(KEYS, st.integers(1, 9))
def test_cuts_are_full_and_hold_each_key_once_with_all_that_share_it(keys: list[int], size: int) -> None:
    cuts = cut_keys(np.array(keys, np.int64), size)
    begins = [-6, *(cut.upto for cut in cuts)]
    for begin, cut in zip(begins, cuts, strict=False):
        assert cut.upto in keys
        assert cut.size == sum(begin < key <= cut.upto for key in keys)
    assert sum(cut.size for cut in cuts) == len(keys)
    assert all(cut.size >= size for cut in cuts[:-1])
    assert all(cut.size < size + Counter(keys)[cut.upto] for cut in cuts)


def test_no_keys_make_no_cut() -> None:
    assert cut_keys(np.array([], np.int64), 5) == []


@given(st.lists(st.integers(1, 20)), st.lists(st.integers(1, 20)), st.integers(1, 20))
def test_joining_cuts_keeps_their_end_and_their_sum(first: list[int], second: list[int], size: int) -> None:
    cuts = [Cut(place, rows) for place, rows in enumerate([*first, *second])]
    whole = merge_cuts(cuts[: len(first)], cuts[len(first) :], size)
    assert sum(cut.size for cut in whole) == sum(first) + sum(second)
    assert [cut.upto for cut in whole[-1:]] == [cut.upto for cut in cuts[-1:]]
    assert len(cuts) - len(whole) <= 1


def test_two_short_cuts_become_one_that_is_no_larger_than_a_page() -> None:
    assert merge_cuts([Cut(3, 2)], [Cut(9, 3), Cut(12, 5)], 5) == [Cut(9, 5), Cut(12, 5)]
    assert merge_cuts([Cut(3, 3)], [Cut(9, 3)], 5) == [Cut(3, 3), Cut(9, 3)]
    assert merge_cuts([Cut(1, 4), Cut(3, 2)], [Cut(9, 3)], 5) == [Cut(1, 4), Cut(9, 5)]
    assert merge_cuts([], [Cut(9, 3)], 5) == merge_cuts([Cut(9, 3)], [], 5) == [Cut(9, 3)]
