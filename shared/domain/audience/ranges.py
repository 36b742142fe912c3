"""Ranges: parts of an audience that can be read again, and give the same rows."""

from msgspec import Struct


class KeyRange(Struct, frozen=True, tag="keys", omit_defaults=True):
    """The rows of the table with `after` < seq_id <= `upto` that the job's filters keep, without those whose seq_id is
    one of `repeated`."""

    after: int
    upto: int
    repeated: tuple[int, ...] = ()


class ByteRange(Struct, frozen=True, tag="bytes"):
    """The users in the job's file from byte `start` up to `end`, which are `rows` whole records.

    `repeated` has a bit for each row, the highest of the first byte being the first row's: set where the user stood in
    the file before. It is empty where none did.
    """

    start: int
    end: int
    rows: int
    repeated: bytes = b""

    @property
    def repeats(self) -> int:
        """How many rows repeat a user who stood in the file before."""
        return int.from_bytes(self.repeated).bit_count()

    @property
    def users(self) -> int:
        """How many users stand here first."""
        return self.rows - self.repeats


class DeviceList(Struct, frozen=True, tag="devices"):
    """The devices of one list of a group's division (`shared.domain.jobs.divisions`), which is stored under this id."""

    id: str


Range = KeyRange | ByteRange | DeviceList
