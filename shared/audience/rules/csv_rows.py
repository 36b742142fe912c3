"""Rows of a CSV audience: the user ids of a file that comes in chunks, and their places.

The rules are Marathon's as far as it had any; `csv_layout` has the grammar. The first record is a header, which is
discarded. The first column of every other record is a user id, without surrounding blanks and zero-width characters,
unless the reader asks for named columns (`csv_header`). All records have as many columns as the first. The file is
UTF-8, with or without a byte order mark. A file that breaks a rule is refused, by line.
"""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from shared.audience.rules.columns import FIRST, BadHeader, Chosen, Header, read_names, strip_unseen
from shared.audience.rules.csv_layout import MAX_RECORD_BYTES, Flaw, Layout, Positions, first_flaw, lay_out
from shared.core.errors import Invalid

FIELD = "csvPath"
HEADER_ONLY = "the file has a header and no rows behind it"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = b" \t\x0b\x0c\x1c\x1d\x1e\x1f"
_LINE_ENDS = b"\r\n"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Rows(Struct, frozen=True, eq=False):
    """Neighbouring rows: their ids in UTF-8, the first byte of each and the one after its line end, counted from the
    beginning of the file. `others` are the values of the other chosen columns, a list for each."""

    ids: list[bytes]
    starts: Positions
    ends: Positions
    others: tuple[list[bytes], ...] = ()

    def parts(self, size: int) -> "Iterator[Rows]":
        for first in range(0, len(self.ids), size):
            part = slice(first, first + size)
            others = tuple(values[part] for values in self.others)
            yield Rows(self.ids[part], self.starts[part], self.ends[part], others)


NO_ROWS = Rows([], np.empty(0, np.intp), np.empty(0, np.intp))


def merge_rows(rows: Rows, more: Rows) -> Rows:
    if not more.ids:
        return rows
    if not rows.ids:
        return more
    return Rows(
        [*rows.ids, *more.ids],
        np.concatenate((rows.starts, more.starts)),
        np.concatenate((rows.ends, more.ends)),
        tuple([*values, *others] for values, others in zip(rows.others, more.others, strict=True)),
    )


class RowReader:
    """Reads a file from its beginning, or the records from `start` on, where one must begin; only 0 has a header.

    A chunk may have any size and end anywhere; the reader keeps its incomplete rest, less than `record_bytes`. The rest
    is read again with the next chunk, so chunks should not be much smaller than a record: 256 KiB and more are fast. A
    chunk takes 3 to 12 times its size in memory, and 50 times for only quotes and line ends.

    `columns` is their number; by default that of the first record. `chosen` are those to read. If names decide,
    `choose` picks them by the file's header, which is kept.

    An error names the line, counted from 1 (the header's, as a rule), or the byte, counted from 0, if not read from the
    beginning. Read no further then. An error of `choose` names the header.
    """

    def __init__(
        self,
        *,
        start: int = 0,
        columns: int | None = None,
        chosen: Chosen = FIRST,
        choose: Callable[[Header], Chosen] | None = None,
        record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self.columns = columns
        self.header: Header | None = None
        self.title = ""  # the header's cell above the ids
        self._chosen = chosen
        self._choose = choose
        self._record_bytes = record_bytes
        self._header_is_due = self._counts_lines = start == 0
        self._at = start
        self._line = 1
        self._rest = b""

    def feed(self, chunk: bytes) -> Rows:
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
        # A push counts a row of commas as a user without a device.
        layout = lay_out(content, skip_commas=self._choose is not None or self._chosen.name != "")
        if self.columns is None and layout.starts.size:
            self.columns = int(np.diff(layout.commas.searchsorted([layout.starts[0], layout.stops[0]]))[0]) + 1
        if self._choose is not None and self._header_is_due and layout.starts.size:
            self._chosen = self._read_header(self._choose, layout, ended=ended)
        self._check(layout, self._chosen, ended=ended)
        rows = self._rows(layout, size=len(content) - ended)
        self._rest = content[layout.complete :]
        self._at += layout.complete
        self._line += int(layout.breaks.searchsorted(layout.complete))
        return rows

    def _check(self, layout: Layout, chosen: Chosen | None, *, ended: bool, upto: int | None = None) -> None:
        flaw = first_flaw(layout, self.columns, chosen, record_bytes=self._record_bytes, ended=ended)
        if flaw is not None and (upto is None or flaw.found < upto):
            raise Invalid(f"the file has {self._describe_flaw(layout, flaw)}", field=FIELD)

    def _read_header(self, choose: Callable[[Header], Chosen], layout: Layout, *, ended: bool) -> Chosen:
        end = int(layout.ends[0])
        self._check(layout, None, ended=ended, upto=end)
        try:
            self.header = Header(read_names(layout.record(0)), self._at + end)
        except BadHeader as error:
            raise Invalid(f"the file has {error.what}, in the header, column {error.place + 1}", field=FIELD) from None
        try:
            return choose(self.header)
        except Invalid as error:
            raise Invalid(f"{error.reason}, in the header", field=error.field) from error

    def _rows(self, layout: Layout, *, size: int) -> Rows:
        if not layout.starts.size:
            return NO_ROWS
        header = int(self._header_is_due)
        # A last record without a line end was read with one, which the file does not have.
        ends = np.minimum(layout.ends, size) + self._at
        columns = [layout.column(place) for place in (self._chosen.ids, *self._chosen.others)]
        if self._header_is_due:
            self.title = str(columns[0][0], "utf-8")
            self._header_is_due = False
        ids, *others = (column[header:] for column in columns)
        if not self._chosen.name:
            ids = _trim(ids, layout.content)
        return Rows(ids, layout.starts[header:] + self._at, ends[header:], tuple(others))

    def _describe_flaw(self, layout: Layout, flaw: Flaw) -> str:
        byte = self._at + flaw.where
        if byte == 0 and layout.content.startswith(_UTF_16_MARKS):
            return "UTF-16 where UTF-8 must be, in line 1"
        if not self._counts_lines:
            return f"{flaw.what}, at byte {byte}"
        return f"{flaw.what}, in line {self._line + layout.breaks.searchsorted(flaw.where)}"


def _trim(ids: list[bytes], content: bytes) -> list[bytes]:
    """The ids without invisible characters around them. Most contents have no blank at all."""
    if content.isascii() and b'"' not in content and not any(blank in content for blank in _BLANKS):
        return ids
    return [id.strip(_BLANKS + _LINE_ENDS) if id.isascii() else strip_unseen(str(id, "utf-8")).encode() for id in ids]
