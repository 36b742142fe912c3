"""Slices hold every row of a file once, whatever chunks it comes in, and each user where he stands first."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.columns import Header, choose
from shared.audience.rules.csv_cuts import Slice, Slicer
from shared.core.errors import Invalid
from tests.audience.rules.csv_files import MARK, files, is_empty, oracle, pieces


def sliced(chunks: Iterable[bytes], size: int) -> list[Slice]:
    slicer = Slicer(size)
    return [*(each for chunk in chunks for each in slicer.feed(chunk)), *slicer.finish()]


@given(files(), st.lists(st.integers(0, 100), max_size=4), st.integers(1, 4))
def test_each_user_is_in_one_slice_and_each_row_is_counted(text: str, at: list[int], size: int) -> None:
    ids = [] if is_empty(text) else oracle(text)
    content = text.encode()
    if not ids:
        with pytest.raises(Invalid):
            sliced(pieces(content, at), size)
        return
    slices = sliced(pieces(content, at), size)
    assert [user for each in slices for user in each.users] == list(dict.fromkeys(ids))
    assert sum(each.repeated for each in slices) == len(ids) - len(set(ids))
    assert all(0 < len(each.users) + each.repeated <= size for each in slices)


def test_a_slice_tells_how_far_the_file_is_read() -> None:
    content = MARK + b"id\nu1\nu2\nu1\n\nu3"
    assert sliced([content], 2) == [Slice(["u1", "u2"], 0, 12), Slice([], 1, 15), Slice(["u3"], 0, 18)]
    assert [each.upto for each in sliced([content], 9)] == [15, 18]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "empty"), (MARK, "empty"), (b"\n\r\n", "empty"), (b"id", "no rows"), (MARK + b"id\n\n", "no rows")],
)
def test_a_file_of_nobody_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as refused:
        sliced([content], 3)
    assert refused.value.field == "csvPath"


def test_a_file_that_breaks_half_way_has_given_its_slices_before() -> None:
    slicer = Slicer(3)
    assert slicer.feed(b"id\nu1\nu2\n") == [Slice(["u1", "u2"], 0, 9)]
    with pytest.raises(Invalid, match="in line 4"):
        slicer.feed(b"u\x004\n")


def test_the_ids_of_a_slice_may_stand_in_a_named_column() -> None:
    slicer = Slicer(9, bytes.lower, choose=lambda header: choose(header, "recipient", ()))
    assert slicer.header is None
    slices = [*slicer.feed(b"Name,Recipient\nAnn,a1\nBob,b2\nAnn,A1\n"), *slicer.finish()]
    assert slices == [Slice(["a1", "b2"], 1, 36)]
    assert slicer.header == Header(("name", "recipient"), 15)


@pytest.mark.parametrize(
    ("content", "lacks"),
    [
        (b"u1\nu22\nu3\n", True),
        (b"17\n4\n", True),
        (b"6e1d6e0c-0000-4000-8000-000000000001,a\nffffffff-ffff-4fff-bfff-ffffffffffff,b\n", True),
        (b"ana@example.com\nbob@example.com\n", True),
        (MARK + b'"u1"\n"u2"\n', True),
        (b"id\nu1\n", False),
        (b"user_id\n17\n", False),
        (b"column1\n17\n", False),
        (b"ana\nbob\n", False),
    ],
)
def test_a_first_line_that_looks_like_data_is_noticed(content: bytes, lacks: bool) -> None:
    for at in (range(0), range(len(content))):
        slicer = Slicer(2)
        for chunk in pieces(content, at):
            slicer.feed(chunk)
        slicer.finish()
        assert slicer.lacks_header is lacks


def test_a_header_that_names_columns_is_no_data() -> None:
    slicer = Slicer(9, choose=lambda header: choose(header, "r1", ()))
    slicer.feed(b"r1\nr2\n")
    assert not slicer.lacks_header


def test_the_values_of_other_columns_are_those_of_the_users_of_a_slice() -> None:
    slicer = Slicer(2, choose=lambda header: choose(header, "recipient", ("name",)))
    slices = [*slicer.feed(b"Name,Recipient\nAnn,a\nAgain,a\nBob,b\n"), *slicer.finish()]
    assert slices == [Slice(["a"], 1, 29, ([b"Ann"],)), Slice(["b"], 0, 35, ([b"Bob"],))]
