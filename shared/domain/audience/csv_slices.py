"""Slices: the rows of a CSV audience in groups, for a count. A user with several rows counts at the first, as in the
cuts of a job's batches."""

import re
from collections.abc import Callable, Iterator
from itertools import compress

import numpy as np
from msgspec import Struct

from shared.domain.audience.column_names import strip_unseen
from shared.domain.audience.csv_header import Chosen, Header
from shared.domain.audience.csv_rows import FIELD, HEADER_ONLY, RowReader, Rows
from shared.domain.audience.repeats import Flags, Repeats, hashes_of
from shared.domain.audience.user_ids import Normalize
from shared.domain.errors import Invalid

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
