"""Spellings of one user have one normal form, and different users have different ones."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.columns import NORMAL_FORMS, normalize_integer, normalize_uuid, readable_ids
from shared.audience.rules.csv_cuts import Cutter, Slicer, users_in
from shared.audience.rules.csv_rows import RowReader
from shared.audience.rules.repeats import Repeats

integers = st.integers(-(2**63), 2**63 - 1)


@given(integers, integers)
def test_integers_are_equal_by_value_alone(one: int, other: int) -> None:
    spellings = [f"{one}", f" {one} ", f"{one:+}", f"{one:030}", f"{one:#x}", f"{one:_}"]
    assert {normalize_integer(spelled.encode()) for spelled in spellings} == {f"{one}".encode()}
    assert (normalize_integer(f"{one}".encode()) == normalize_integer(f"{other:05}".encode())) == (one == other)


@given(st.uuids(), st.uuids())
def test_uuids_are_equal_by_their_digits_alone(one: uuid.UUID, other: uuid.UUID) -> None:
    spellings = [f"{one}", f"{one}".upper(), one.hex, f"{{{one}}}"]
    assert len({normalize_uuid(spelled.encode()) for spelled in spellings}) == 1
    assert (normalize_uuid(f"{one}".encode()) == normalize_uuid(other.hex.encode())) == (one == other)


@pytest.mark.parametrize("spelled", [b"", b"ann", b"1e3", b"9" * 5_000, "٣x".encode(), b"\xff"])
def test_what_is_no_integer_stays_as_it_is(spelled: bytes) -> None:
    assert normalize_integer(spelled) == spelled


def test_of_a_uuid_only_braces_and_hyphens_are_ignored() -> None:
    # As PostgreSQL does. What it would not read as a UUID must not become one.
    assert normalize_uuid(b"{01-ab}") == b"01ab"
    assert normalize_uuid(b"x01 ab") == b"x01 ab"


def test_the_types_of_columns_have_the_names_that_postgresql_has_for_them() -> None:
    by_value = {name for name, normalize in NORMAL_FORMS.items() if normalize is normalize_integer}
    assert by_value == {"smallint", "integer", "bigint"}
    assert NORMAL_FORMS["uuid"] is normalize_uuid
    assert [name for name, normalize in NORMAL_FORMS.items() if normalize is None] == ["text", "character varying"]


CONTENT = b"id\n7\n8\n007\n 8\n+9\n"


@pytest.mark.parametrize(("column_type", "users"), [("text", ["7", "8", "007", "+9"]), ("bigint", ["7", "8", "+9"])])
def test_a_user_in_two_spellings_is_sent_to_and_counted_where_he_stands_first(
    column_type: str, users: list[str]
) -> None:
    normalize = NORMAL_FORMS[column_type]
    reader, cutter = RowReader(), Cutter(2, Repeats(), normalize=normalize)
    cuts = [*cutter.add(reader.feed(CONTENT)), *cutter.add(reader.finish()), *cutter.finish()]
    assert [user for cut in cuts for user in users_in(cut, CONTENT[cut.start : cut.end])] == users

    slicer = Slicer(2, normalize)
    slices = [*slicer.feed(CONTENT), *slicer.finish()]
    assert [user for found in slices for user in found.users] == users
    assert sum(found.repeated for found in slices) == 5 - len(users)


def test_ids_that_a_column_cannot_hold_are_left_out() -> None:
    spelled = ["1", " 02", "+3", "-4", "42.0", "ann", "", str(2**63 - 1), str(2**63), "-32768", "32768"]
    assert readable_ids("bigint", spelled) == ["1", "2", "3", "-4", str(2**63 - 1), "-32768", "32768"]
    assert readable_ids("smallint", spelled) == ["1", "2", "3", "-4", "-32768"]
    assert readable_ids("text", ["1", "a\0b", "é"]) == ["1", "é"]
    one = "6e1d6e0c-0000-4000-8000-000000000001"
    assert readable_ids("uuid", [one, f"{{{one.upper()}}}", "6e1d", "42"]) == [one.replace("-", "")] * 2
