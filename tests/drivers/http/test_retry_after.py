"""Retry-After in both its forms, and in forms that it has not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.drivers.http.client import retry_after_seconds

NOW = 784_111_777  # Sun, 06 Nov 1994 08:49:37 GMT
NOON = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0", 0), ("1", 1), (" 120 ", 120), ("007", 7), ("86400", 86_400), ("86401", 86_400), ("9" * 5_000, 86_400)],
)
def test_seconds(value: str, seconds: float) -> None:
    assert retry_after_seconds(value, None, NOW) == seconds


@pytest.mark.parametrize(
    "value", ["Sun, 06 Nov 1994 08:50:37 GMT", "Sunday, 06-Nov-94 08:50:37 GMT", "Sun Nov  6 08:50:37 1994"]
)
def test_the_three_forms_of_a_date(value: str) -> None:
    assert retry_after_seconds(value, None, NOW) == 60
    assert retry_after_seconds(value, "", NOW + 20) == 40


def test_a_date_is_read_by_the_answers_own_clock() -> None:
    in_an_hour = "Sun, 06 Nov 1994 09:49:37 GMT"
    assert retry_after_seconds(in_an_hour, NOON, NOW + 1_000_000) == 3_600
    assert retry_after_seconds(in_an_hour, "yesterday", NOW) == 3_600


def test_a_date_that_is_past_or_far_away() -> None:
    assert retry_after_seconds(NOON, None, NOW + 1) == 0
    assert retry_after_seconds("Sun, 06 Nov 2094 08:49:37 GMT", None, NOW) == 86_400


@pytest.mark.parametrize(
    "value", [None, "", " ", "-1", "1.5", "1e3", "soon", "١٢", "12 s", "Sun, 99 Nov 1994 08:49:37 GMT", "0x10", "+5"]
)
def test_what_cannot_be_read_is_as_if_it_were_missing(value: str | None) -> None:
    assert retry_after_seconds(value, NOON, NOW) is None


@given(st.text(), st.text(), st.integers(0, 2**33))
def test_whatever_comes_is_within_a_day_or_nothing(value: str, date: str, now: int) -> None:
    read = retry_after_seconds(value, date, now)
    assert read is None or 0 <= read <= 86_400
