"""Uploads in parts: what a part may be, and which parts make a file."""

from typing import Any

import pytest

from shared.core.errors import Conflict, Invalid
from shared.core.instants import EPOCH
from shared.jobs.rules.uploads import (
    MAX_BYTES,
    MAX_PART_BYTES,
    MAX_PARTS,
    MIN_PART_BYTES,
    FileUpload,
    UploadedPart,
    check_part,
    check_size,
    check_whole,
    measure_part,
    upload_key,
)


def part(size: int) -> UploadedPart:
    return UploadedPart(size=size, lines=1, open_ended=False, version="v")


def upload(*sizes: int, **more: Any) -> FileUpload:
    parts = {str(number): part(size) for number, size in enumerate(sizes, 1)}
    fields: dict[str, Any] = {
        "id": "a/u",
        "app_id": "a",
        "path": "b/k",
        "token": "t",
        "created_by": "c",
        "changed_at": EPOCH,
    }
    return FileUpload(**(fields | {"parts": parts} | more))


def test_the_largest_file_has_room_in_parts_of_every_size() -> None:
    assert (MAX_PARTS - 1) * MIN_PART_BYTES < MAX_BYTES <= MAX_PARTS * MIN_PART_BYTES
    assert MIN_PART_BYTES <= MAX_PART_BYTES


def test_an_upload_of_one_app_has_another_key_than_that_of_another() -> None:
    assert upload_key("a", "u") != upload_key("b", "u")


def test_lines_are_counted_over_parts() -> None:
    for contents, lines in (
        ([b"id\nu1\n"], 2),
        ([b"id\nu1"], 2),
        ([b"id\nu", b"1\nu2"], 3),
        ([b"id\nu1\n", b"u2\n"], 3),
        ([b"id"], 1),
    ):
        parts = {str(number): measure_part(content, "v") for number, content in enumerate(contents, 1)}
        found = upload(parts=parts)
        assert (found.lines, found.size) == (lines, sum(map(len, contents)))
    assert upload().lines == 0


def test_parts_stand_in_the_order_of_their_numbers() -> None:
    parts = {str(number): part(number) for number in (10, 9, 1)}
    assert [number for number, _ in upload(parts=parts).in_order] == [1, 9, 10]


@pytest.mark.parametrize(
    ("number", "size", "rule"),
    [(1, 0, "^the file is empty$"), (2, 0, "1 to 8,388,608 bytes"), (1, MAX_PART_BYTES + 1, "1 to 8,388,608 bytes")],
)
def test_a_part_has_a_size(number: int, size: int, rule: str) -> None:
    with pytest.raises(Invalid, match=rule) as caught:
        check_part(upload(), number, bytes(size), most=MAX_BYTES)
    assert caught.value.field == "body"
    check_part(upload(), 1, bytes(MAX_PART_BYTES), most=MAX_BYTES)


def test_a_file_has_at_most_so_many_bytes_and_a_part_that_is_replaced_does_not_count() -> None:
    check_part(upload(60), 2, bytes(40), most=100)
    check_part(upload(60, 40), 1, bytes(60), most=100)
    with pytest.raises(Invalid, match="at most 100 bytes") as caught:
        check_part(upload(60), 2, bytes(41), most=100)
    assert (caught.value.field, caught.value.value) == ("body", 101)


def test_a_file_of_the_largest_size_is_taken() -> None:
    check_size(100, most=100)
    with pytest.raises(Invalid, match="at most 100 bytes") as caught:
        check_size(101, most=100)
    assert (caught.value.field, caught.value.value) == ("body", 101)


def test_nothing_is_added_to_what_is_completed() -> None:
    with pytest.raises(Conflict, match="completed") as caught:
        check_part(upload(1, completed=True), 1, b"x", most=100)
    assert caught.value.field == "upload"


@pytest.mark.parametrize(("numbers", "missing"), [((), 1), ((2,), 1), ((1, 3), 2), ((2, 3), 1)])
def test_a_file_has_all_its_parts(numbers: tuple[int, ...], missing: int) -> None:
    parts = {str(number): part(MIN_PART_BYTES) for number in numbers}
    with pytest.raises(Conflict, match=f"part {missing} is missing") as caught:
        check_whole(upload(parts=parts), None)
    assert (caught.value.field, caught.value.value) == ("part", missing)


def test_only_the_last_part_is_small() -> None:
    check_whole(upload(MIN_PART_BYTES, MIN_PART_BYTES, 1), None)
    check_whole(upload(1), None)
    with pytest.raises(Conflict, match=r"part 2 has 5,242,879 bytes: all but the last have at least 5,242,880"):
        check_whole(upload(MIN_PART_BYTES, MIN_PART_BYTES - 1, MIN_PART_BYTES), None)


def test_a_file_has_the_size_that_was_told() -> None:
    check_whole(upload(MIN_PART_BYTES, 1), MIN_PART_BYTES + 1)
    with pytest.raises(Conflict, match="have 7 bytes together, not 0") as caught:
        check_whole(upload(7), 0)
    assert caught.value.field == "bytes"
