"""Repeats are what a set of all ids would find, up to a limit, in little more than 8 bytes each."""

import tracemalloc
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.repeats import Hashes, Repeats, hashes_of, later_ones, within

numbers = st.one_of(st.integers(0, 12), st.sampled_from([-(2**63), 2**63 - 1, -1]))


def hashes(values: Sequence[int]) -> Hashes:
    return np.array(values, np.int64)


def marked(memory: Repeats, groups: Sequence[Sequence[int]]) -> list[bool]:
    return [flag for group in groups for flag in memory.mark(hashes(group)).tolist()]


def by_a_set(values: Sequence[int], limit: int) -> Iterator[bool]:
    seen: set[int] = set()
    for value in values:
        yield value in seen
        if len(seen) < limit:
            seen.add(value)


@pytest.fixture
def small_shelves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.audience.rules.repeats._SHELF", 4)
    monkeypatch.setattr("shared.audience.rules.repeats._TRAY", 6)


@pytest.mark.usefixtures("small_shelves")
def test_repeats_are_those_of_a_set() -> None:
    @given(groups=st.lists(st.lists(numbers | st.integers(-100, 100), max_size=30), max_size=12))
    def in_any_groups(groups: list[list[int]]) -> None:
        values = [value for group in groups for value in group]
        memory = Repeats()
        assert marked(memory, groups) == list(by_a_set(values, len(values)))
        assert memory.is_exhaustive

    in_any_groups()


@pytest.mark.usefixtures("small_shelves")
def test_past_the_limit_the_first_ids_are_still_known() -> None:
    @given(groups=st.lists(st.lists(numbers, max_size=12), max_size=6), limit=st.integers(0, 12))
    def in_any_groups(groups: list[list[int]], limit: int) -> None:
        values = [value for group in groups for value in group]
        memory = Repeats(limit)
        assert marked(memory, groups) == list(by_a_set(values, limit))
        assert memory.is_exhaustive == (len(set(values)) <= limit)

    in_any_groups()


def test_who_remembers_as_many_as_there_is_room_for_misses_nothing() -> None:
    memory = Repeats(2)
    assert marked(memory, [[1, 1, 2]]) == [False, True, False]
    assert memory.is_exhaustive
    assert marked(memory, [[3, 3]]) == [False, False]
    assert not memory.is_exhaustive


@given(values=st.lists(numbers), others=st.lists(numbers))
def test_later_ones_and_those_within(values: list[int], others: list[int]) -> None:
    assert later_ones(hashes(values)).tolist() == [value in values[:index] for index, value in enumerate(values)]
    assert within(hashes(sorted(others)), hashes(values)).tolist() == [value in others for value in values]


def test_a_hash_is_of_the_bytes_of_an_id() -> None:
    first, same, other = hashes_of([b"u1", b"u" + str(1).encode(), b"u2"]).tolist()
    assert first == same != other


@pytest.mark.alone
def test_two_million_ids_take_little_more_than_16_mb() -> None:
    random = np.random.default_rng(7)
    ids = random.integers(-(2**63), 2**63, 2_000_000)
    tracemalloc.start()
    try:
        memory = Repeats()
        assert not any(memory.mark(group).any() for group in np.array_split(ids, 80))
        kept, peak = tracemalloc.get_traced_memory()
        again = [memory.mark(group) for group in np.array_split(random.permutation(ids), 80)]
    finally:
        tracemalloc.stop()
    assert all(flags.all() for flags in again)
    assert kept < 8 * ids.size * 1.1
    assert peak < 8 * ids.size * 1.6
