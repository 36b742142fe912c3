"""Ids that we make sort by their time, and ids of callers are read however they are spelt."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Invalid
from shared.core.ids import read_uuid, time_ordered_id

times = st.integers(0, 7_289_654_399_999_000_000)
noises = st.integers(0, 2**62 - 1)


@given(times, noises)
def test_an_id_is_a_uuid_of_version_7_that_tells_its_time(now: int, noise: int) -> None:
    made = uuid.UUID(time_ordered_id(now, noise))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == now // 1_000_000
    assert made.int & (2**62 - 1) == noise
    fraction = made.int >> 64 & 0xFFF
    assert 0 <= now % 1_000_000 - fraction * 1_000_000 / 4_096 < 1_000_000 / 4_096


@given(st.lists(st.tuples(times, noises), min_size=2, max_size=9))
def test_ids_sort_by_their_times(made: list[tuple[int, int]]) -> None:
    # To a quarter of a microsecond.
    ordered = sorted(made, key=lambda each: (each[0] // 1_000_000, each[0] % 1_000_000 * 4096 // 1_000_000, each[1]))
    assert sorted(time_ordered_id(*each) for each in made) == [time_ordered_id(*each) for each in ordered]


def test_a_golden_id_and_noise_that_is_too_large_does_not_spill() -> None:
    assert time_ordered_id(1_772_366_400_123_456_789, 5) == "019ca945-0a7b-774f-8000-000000000005"
    assert time_ordered_id(0, 2**62 + 5) == time_ordered_id(0, 5)


@given(st.uuids(), st.sampled_from(["{}", "urn:uuid:{}", "{{{}}}"]), st.booleans())
def test_every_spelling_of_a_uuid_is_read(id: uuid.UUID, spelling: str, upper: bool) -> None:
    for text in (spelling.format(id), id.hex):
        assert read_uuid(text.upper() if upper else text, field="id") == str(id)


@pytest.mark.parametrize(
    "text",
    ["", "x" * 32, "0" * 31, "0" * 33, "0" * 32 + "\n", "{" + "0" * 32 + "}", "urn:uuid:" + "0" * 32, "\u0660" * 32],
)
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"^jobId must be a UUID") as refused:
        read_uuid(text, field="jobId")
    assert (refused.value.field, refused.value.value) == ("jobId", text)
