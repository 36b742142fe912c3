"""Counts by the minute."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from shared.console.rules.processes import Counts, MinuteCounts, minute_id, subtract

COUNTS = st.dictionaries(st.sampled_from(["retries", "requests"]), st.integers(min_value=0, max_value=9), max_size=2)
NESTED = st.dictionaries(
    st.sampled_from(["fired", "recipients"]),
    st.dictionaries(st.sampled_from("abc"), st.integers(min_value=0, max_value=9)),
)


def added(left: Counts, right: Counts) -> Counts:
    sums: dict[str, int | dict[str, int]] = {}
    for field in {*left, *right}:
        one, other = left.get(field, 0), right.get(field, 0)
        if isinstance(one, Mapping) or isinstance(other, Mapping):
            mine = one if isinstance(one, Mapping) else {}
            theirs = other if isinstance(other, Mapping) else {}
            sums[field] = {key: mine.get(key, 0) + theirs.get(key, 0) for key in {*mine, *theirs}}
        else:
            sums[field] = one + other
    return sums


def bare(counts: Counts) -> Counts:
    """Without zeros."""
    return {
        field: value
        for field, each in counts.items()
        if (value := {key: n for key, n in each.items() if n} if isinstance(each, Mapping) else each)
    }


@given(COUNTS, NESTED, COUNTS, NESTED)
def test_what_was_counted_since_is_the_difference(
    plain: Counts, nested: Counts, more: Counts, nested_more: Counts
) -> None:
    earlier, grown = {**plain, **nested}, {**more, **nested_more}
    assert subtract(added(earlier, grown), earlier) == bare(grown)


def test_a_minute_is_named_by_its_beginning_in_utc() -> None:
    at = datetime(2030, 1, 2, 3, 4, 59, 999_999, tzinfo=timezone(timedelta(hours=2)))
    assert minute_id(at) == "2030-01-02T01:04"
    assert MinuteCounts(id=minute_id(at)).at == datetime(2030, 1, 2, 1, 4, tzinfo=UTC)
