"""How the messages of a batch are put into groups that are made together."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from services.worker.messages.contents import ends_of_groups

MOST, CHARACTERS = 200, 256 * 1024


@given(st.lists(st.integers(0, 1024 * 1024) | st.integers(0, 300), max_size=500))
def test_groups_are_small_and_have_everybody(lengths: list[int]) -> None:
    ends = [*ends_of_groups(lengths)]
    assert (ends[0], ends[-1]) == (0, len(lengths))
    for first, end in pairwise(ends):
        assert first < end <= first + MOST
        assert sum(lengths[first:end]) <= CHARACTERS or end == first + 1


def test_small_messages_are_made_a_few_hundred_at_a_time() -> None:
    assert [*ends_of_groups([100] * 500)] == [0, 200, 400, 500]
    assert [*ends_of_groups([])] == [0]
