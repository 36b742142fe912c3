"""What a header and a carried trace may say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.runtime.tracing.context import YOUNG_SECONDS, Carried, TraceParent, header_of, read_carried, read_header

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{SPAN}-01"
ids = st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1)


@pytest.mark.parametrize(
    ("flags", "is_recorded"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)]
)
def test_a_callers_header_names_a_span_and_says_whether_it_is_recorded(flags: str, is_recorded: bool) -> None:
    assert read_header(f"00-{TRACE}-{SPAN}-{flags}") == TraceParent(int(TRACE, 16), int(SPAN, 16), is_recorded)


def test_a_header_of_a_later_version_may_say_more() -> None:
    assert read_header(f"01-{TRACE}-{SPAN}-01-what.comes") == read_header(HEADER)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        HEADER.upper(),
        f" {HEADER}",
        f"{HEADER}\n",
        f"{HEADER}-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0\u0661",
        f"01-{TRACE}-{SPAN}-01-" + "x" * 100_000,
    ],
)
def test_what_is_none_is_no_parent(text: str) -> None:
    assert read_header(text) is None


@given(st.text())
def test_any_text_is_read_or_ignored(text: str) -> None:
    assert read_header(text) is None
    assert read_carried(text) is None


@given(*ids, st.integers(0, 10**11))
def test_what_is_carried_is_read_as_it_was_written(trace_id: int, span_id: int, began: int) -> None:
    carried = Carried(TraceParent(trace_id, span_id), began)
    assert read_carried(str(carried)) == carried
    assert read_header(header_of(str(carried))) == carried.parent


@pytest.mark.parametrize("text", ["", HEADER, f"{HEADER}@", f"{HEADER}@-1", f"00-{TRACE}-{SPAN}-00@1", f"{HEADER}@1 "])
def test_what_cannot_be_read_is_not_carried(text: str) -> None:
    assert read_carried(text) is None


def test_a_trace_is_young_for_ten_minutes() -> None:
    carried = Carried(TraceParent(1, 2), 1_000)
    assert carried.is_young(1_000 + YOUNG_SECONDS)
    assert not carried.is_young(1_001 + YOUNG_SECONDS)
