"""Ranges: parts of an audience that give the same rows at each reading."""

from msgspec import Struct


class KeyRange(Struct, frozen=True, tag="keys", omit_defaults=True):
    """The rows of the table with `after` < seq_id <= `upto` that the job's filters keep, without those whose seq_id is
    one of `repeated`."""

    after: int
    upto: int
    repeated: tuple[int, ...] = ()


class ByteRange(Struct, frozen=True, tag="bytes"):
    """The users in the job's file from byte `start` up to `end`, which are `rows` whole records.

    `repeated` has a bit for each row, the highest of the first byte for the first row: set if the user has an earlier
    row. It is empty without repeats.
    """

    start: int
    end: int
    rows: int
    repeated: bytes = b""

    @property
    def repeats(self) -> int:
        """The number of rows that repeat an earlier user."""
        return int.from_bytes(self.repeated).bit_count()

    @property
    def users(self) -> int:
        return self.rows - self.repeats


class DeviceList(Struct, frozen=True, tag="devices"):
    """The devices of one list of a group's division (`shared.domain.jobs.divisions`), stored under this id."""

    id: str


Range = KeyRange | ByteRange | DeviceList
