"""Ranges and sources: what a plan refers to, as it is stored."""

import msgspec
import pytest

from shared.audience.rules.audiences import ByteRange, DeviceList, File, KeyRange, PushTable, Range, Source


@pytest.mark.parametrize(
    ("stored", "range"),
    [
        ('{"type":"keys","after":-5,"upto":9}', KeyRange(-5, 9)),
        ('{"type":"bytes","start":3,"end":90,"rows":5}', ByteRange(3, 90, 5, repeated=b"")),
        ('{"type":"devices","id":"d/1"}', DeviceList("d/1")),
    ],
)
def test_what_is_stored_of_a_range_is_read_in_every_release(stored: str, range: Range) -> None:
    read: Range = msgspec.json.decode(stored, type=Range)
    assert read == range


@pytest.mark.parametrize(
    ("stored", "source"),
    [
        ('{"type":"table","highest":7}', PushTable(7)),
        ('{"type":"file","path":"b/k","size":9,"version":"v"}', File("b/k", 9, "v")),
    ],
)
def test_what_is_stored_of_a_source_is_read_in_every_release(stored: str, source: Source) -> None:
    read: Source = msgspec.json.decode(stored, type=Source)
    assert read == source


def test_users_are_the_rows_that_do_not_repeat() -> None:
    file = ByteRange(3, 90, 10, repeated=bytes([0b0100_0001, 0b1000_0000]))
    assert (file.repeats, file.users) == (3, 7)
    assert (ByteRange(3, 90, 10).repeats, ByteRange(3, 90, 10).users) == (0, 10)
