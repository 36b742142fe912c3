"""Rows of a CSV audience: the user ids of a file that comes in chunks, and where each stands.

The rules are Marathon's where it had any; `csv_layout` has the grammar. The first record is a header and is discarded,
whatever it says. The first column of every other is a user id, taken as it stands. All have as many columns as the
first. The file is UTF-8, with or without a byte order mark. A file that breaks a rule is refused, by byte and line.
"""

import numpy as np
from msgspec import Struct

from shared.domain.audience.csv_flaws import MAX_RECORD_BYTES, Flaw, first_flaw
from shared.domain.audience.csv_layout import Layout, Positions, lay_out
from shared.domain.errors import Invalid

FIELD = "csvPath"
HEADER_ONLY = "the file holds a header and nobody behind it"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Rows(Struct, frozen=True, eq=False):
    """Neighbouring rows: their ids in UTF-8, and the first byte of each and the one behind its line end, counted from
    the beginning of the file."""

    ids: list[bytes]
    starts: Positions
    ends: Positions


NO_ROWS = Rows([], np.empty(0, np.intp), np.empty(0, np.intp))


class RowReader:
    """Reads a file from its beginning, or the records from `start` on, where one must begin; a header is only at 0.

    A chunk may have any size and end anywhere; what is held is what is left of it, less than `record_bytes`. That is
    read again with the next chunk, so chunks should not be much smaller than a record: 256 KiB and more are fast.
    Reading one takes 3 to 12 times its size, and 50 times that of a chunk of nothing but quotes and line ends.

    `columns` is how many there are; if not told, the first record tells.

    Raises, from `feed` and `finish`:
        Invalid: the file breaks a rule. `reason` says which and where: bytes are counted from 0, lines from 1 (the
            header's, as a rule), and lines only if read from the beginning. Read no further then.
    """

    def __init__(self, *, start: int = 0, columns: int | None = None, record_bytes: int = MAX_RECORD_BYTES) -> None:
        self.columns = columns
        self._record_bytes = record_bytes
        self._header_is_due = self._counts_lines = start == 0
        self._at = start
        self._line = 1
        self._rest = b""

    def feed(self, chunk: bytes) -> Rows:
        """The rows that this chunk completes."""
        return self._read(self._rest + chunk, ended=False)

    def finish(self) -> Rows:
        """The last row, if it has no line end."""
        rows = self._read(self._rest + b"\n", ended=True) if self._rest else NO_ROWS
        if self._header_is_due:
            raise Invalid("the file is empty", field=FIELD)
        return rows

    def _read(self, content: bytes, *, ended: bool) -> Rows:
        if self._at == 0 and content.startswith(_BYTE_ORDER_MARK):
            self._at = len(_BYTE_ORDER_MARK)
            content = content[self._at :]
        layout = lay_out(content)
        if self.columns is None and layout.starts.size:
            self.columns = int(layout.commas.searchsorted(layout.stops[0])) + 1
        flaw = first_flaw(layout, self.columns, record_bytes=self._record_bytes, ended=ended)
        if flaw is not None:
            raise Invalid(f"the file has {self._describe_flaw(layout, flaw)}", field=FIELD)
        rows = self._rows(layout, size=len(content) - ended)
        self._rest = content[layout.complete :]
        self._at += layout.complete
        self._line += int(layout.breaks.searchsorted(layout.complete))
        return rows

    def _rows(self, layout: Layout, *, size: int) -> Rows:
        if not layout.starts.size:
            return NO_ROWS
        header = int(self._header_is_due)
        self._header_is_due = False
        # A last record without a line end was read with one, which the file does not have.
        ends = np.minimum(layout.ends, size) + self._at
        return Rows(layout.first_columns()[header:], layout.starts[header:] + self._at, ends[header:])

    def _describe_flaw(self, layout: Layout, flaw: Flaw) -> str:
        byte = self._at + flaw.where
        if byte == 0 and layout.content.startswith(_UTF_16_MARKS):
            return "UTF-16 where UTF-8 must be, at byte 0, line 1"
        if not self._counts_lines:
            return f"{flaw.what}, at byte {byte}"
        return f"{flaw.what}, at byte {byte}, line {self._line + layout.breaks.searchsorted(flaw.where)}"
