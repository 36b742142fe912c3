"""Cuts of a CSV audience for batches, and slices for a count.

A cut is a batch's range of the file's bytes, which can be read again. The cuts and the repeated rows depend on the
file alone, never on its chunks, so a repeated plan is the same. An id gets its message in the cut of its first row
only. A slice is a group of rows; a user with several rows counts at the first, too.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import TypeVar

import numpy as np
from msgspec import Struct

from shared.audience.rules.audiences import ByteRange
from shared.audience.rules.columns import FIRST, Chosen, Header, Normalize, strip_unseen
from shared.audience.rules.csv_rows import FIELD, HEADER_ONLY, NO_ROWS, RowReader, Rows, merge_rows
from shared.audience.rules.repeats import Flags, Hashes, Repeats, hashes_of, later_ones
from shared.core.errors import Invalid

_T = TypeVar("_T")
MAX_CUT_BYTES = 4 * 1024 * 1024
"""More than a record may have, so that a cut always contains one."""


class Cutter:
    """Cuts neighbouring rows, after `size` of them or before they would take more than `max_bytes`.

    Ids of one normal form are one user. Repeats of ids beyond the memory of `repeats` are found only within one cut;
    without `repeats` no row counts as one.
    """

    def __init__(
        self, size: int, repeats: Repeats | None, *, normalize: Normalize | None = None, max_bytes: int = MAX_CUT_BYTES
    ) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self._repeats = repeats
        self._normalize = normalize
        self._starts = NO_ROWS.starts
        self._ends = NO_ROWS.ends
        self._hashes: Hashes = hashes_of(())

    def add(self, rows: Rows) -> list[ByteRange]:
        """The cuts that these rows complete, in order."""
        self._starts = np.concatenate((self._starts, rows.starts))
        self._ends = np.concatenate((self._ends, rows.ends))
        self._hashes = np.concatenate((self._hashes, self._hash(rows.ids)))
        return self._cut(self._complete())

    def finish(self) -> list[ByteRange]:
        return self._cut([self._ends.size] if self._ends.size else [])

    def _hash(self, ids: Sequence[bytes]) -> Hashes:
        return np.zeros(len(ids), np.int64) if self._repeats is None else hashes_of(ids, self._normalize)

    def _complete(self) -> list[int]:
        """The ends of the complete cuts, as numbers of rows. A cut is complete if a row follows it."""
        bounds: list[int] = []
        first = 0
        while first < self._ends.size:
            fitting = int(self._ends.searchsorted(self._starts[first] + self._max_bytes, side="right"))
            bound = min(first + self._size, max(fitting, first + 1))
            if bound == self._ends.size:
                break
            bounds.append(bound)
            first = bound
        return bounds

    def _cut(self, bounds: list[int]) -> list[ByteRange]:
        if not bounds:
            return []
        flags = self._mark(self._hashes[: bounds[-1]])
        ranges = zip([0, *bounds], bounds, strict=False)
        cuts = [self._one(first, bound, flags[first:bound]) for first, bound in ranges]
        self._starts, self._ends, self._hashes = (
            rest[bounds[-1] :].copy() for rest in (self._starts, self._ends, self._hashes)
        )
        return cuts

    def _mark(self, hashes: Hashes) -> Flags:
        return np.zeros(hashes.size, np.bool_) if self._repeats is None else self._repeats.mark(hashes)

    def _one(self, first: int, bound: int, flags: Flags) -> ByteRange:
        if self._repeats is not None and not self._repeats.is_exhaustive:
            flags = flags | later_ones(self._hashes[first:bound])
        repeated = np.packbits(flags).tobytes() if flags.any() else b""
        return ByteRange(int(self._starts[first]), int(self._ends[bound - 1]), bound - first, repeated)


class FirstRows(Struct, frozen=True, eq=False):
    """The rows of a cut without repeats: their `numbers` among all rows of the cut, from 0 on, their ids, and the
    values of the other chosen columns."""

    numbers: list[int]
    ids: list[bytes]
    others: tuple[list[bytes], ...]


def users_in(cut: ByteRange, content: bytes, *, columns: int | None = None) -> list[str]:
    """The users to send to, in the order of the file. `content` has the bytes of the cut; if they differ, the file has
    changed since the plan."""
    return [str(id, "utf-8") for id in _keep_first(cut, _read(cut, content, columns, FIRST).ids)]


def rows_in(cut: ByteRange, content: bytes, header: Header, chosen: Chosen) -> FirstRows:
    """The rows to send to, in the order of the file, like the users of `users_in`."""
    rows = _read(cut, content, len(header.names), chosen)
    others = tuple(_keep_first(cut, values) for values in rows.others)
    return FirstRows(_keep_first(cut, range(cut.rows)), _keep_first(cut, rows.ids), others)


def _read(cut: ByteRange, content: bytes, columns: int | None, chosen: Chosen) -> Rows:
    reader = RowReader(start=cut.start, columns=columns, chosen=chosen)
    rows = merge_rows(reader.feed(content), reader.finish())
    if len(content) != cut.end - cut.start or len(rows.ids) != cut.rows:
        raise Invalid(f"the file has changed between the bytes {cut.start} and {cut.end}", field=FIELD)
    return rows


def _keep_first(cut: ByteRange, values: Sequence[_T]) -> list[_T]:
    if not cut.repeated:
        return list(values)
    repeated = np.unpackbits(np.frombuffer(cut.repeated, np.uint8), count=cut.rows)
    return list(compress(values, (repeated == 0).tolist()))


HEADER_IS_DATA = "The first line of the file looks like a user, not like a header: nothing is sent to that user."
_DIGITS = re.compile(r"\d+")


class Slice(Struct, frozen=True):
    """Neighbouring rows: the `users` without an earlier row, the number of `repeated` rows, and the byte `upto` which
    the file has been read. `others` are the users' values in the other chosen columns."""

    users: list[str]
    repeated: int
    upto: int
    others: tuple[list[bytes], ...] = ()


class Slicer:
    """Slices a file, from its beginning, after `size` rows or at the end of a chunk. Ids of one normal form are one
    user. They are in the first column, or in the one that `choose` returns for the file's header. Unless each counts
    `once`, no row is a repeated one. Memory is that of a `RowReader`, and 8 bytes for each user up to the limit of
    `Repeats`."""

    def __init__(
        self,
        size: int,
        normalize: Normalize | None = None,
        *,
        choose: Callable[[Header], Chosen] | None = None,
        once: bool = True,
    ) -> None:
        self._size = size
        self._normalize = normalize
        self._reader = RowReader(choose=choose)
        self._repeats = Repeats() if once else None
        self._is_empty = True
        self.lacks_header = False  # whether the first line seems to be a row

    @property
    def title(self) -> str:
        """The header's cell above the ids, trimmed like them; empty before it has been read."""
        return strip_unseen(self._reader.title)

    @property
    def header(self) -> Header | None:
        """The file's header, after it has been read, if columns are chosen by it."""
        return self._reader.header

    def feed(self, chunk: bytes) -> list[Slice]:
        return [*self._slice(self._reader.feed(chunk))]

    def finish(self) -> list[Slice]:
        slices = [*self._slice(self._reader.finish())]
        if self._is_empty:
            raise Invalid(HEADER_ONLY, field=FIELD)
        return slices

    def _slice(self, rows: Rows) -> Iterator[Slice]:
        fresh = self._flag_fresh(rows)
        if self._is_empty and rows.ids:
            self._is_empty = False
            self.lacks_header = self.header is None and _are_alike(self.title, str(rows.ids[0], "utf-8"))
        for first in range(0, len(rows.ids), self._size):
            ids, chosen = rows.ids[first : first + self._size], fresh[first : first + self._size].tolist()
            users = [str(id, "utf-8") for id in compress(ids, chosen)]
            others = tuple([*compress(values[first : first + self._size], chosen)] for values in rows.others)
            yield Slice(users, len(ids) - len(users), int(rows.ends[first + len(ids) - 1]), others)

    def _flag_fresh(self, rows: Rows) -> Flags:
        if self._repeats is None:
            return np.ones(len(rows.ids), np.bool_)
        return ~self._repeats.mark(hashes_of(rows.ids, self._normalize))


def _are_alike(title: str, first: str) -> bool:
    """Whether the header's first cell has the form of the id below it: both are mail addresses, or it has digits, and
    the length or the other characters of that id."""
    if "@" in title:
        return "@" in first
    forms = (_DIGITS.sub("0", title), _DIGITS.sub("0", first))
    return _DIGITS.search(title) is not None and (len(title) == len(first) or forms[0] == forms[1])
