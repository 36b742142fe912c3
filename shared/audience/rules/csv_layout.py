"""The places of the records in a piece of a CSV file, and the file's flaws.

The grammar is RFC 4180's, with LF, CRLF and CR as line ends, also mixed. A field that begins with a quote ends at
its closing quote and may contain commas, line ends and doubled quotes. A blank line is no record; nor, in a file
with named columns, is a line of only commas and quotes, which spreadsheets leave behind.

No loop over bytes: numpy finds the positions of quotes, commas and line ends, and a position with an odd number of
quotes before it is inside quotes. That holds if all quotes are at valid places, which `first_flaw` checks.

A flaw is *found* at the byte at which a sequential reader would notice it, and the first found one is reported. So
the same file gets the same error for any chunks. Complete records are checked. A record that never ends (too long,
or a quote open at the end of the file) is checked by its first bytes alone.
"""

from codecs import utf_8_decode
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.audience.rules.columns import Chosen

QUOTE, COMMA, LF, CR = b'",\n\r'
Positions = NDArray[np.intp]
_NONE: Positions = np.empty(0, np.intp)


class Layout(Struct, frozen=True, eq=False):
    """Positions in `content`, which begins at a record or a line end; all ascending.

    `breaks` are the last bytes of line ends, `commas` those between fields. Record i has its first byte at `starts[i]`,
    its line end at `stops[i]`, and the next line at `ends[i]`. After `complete` no record has ended yet.
    """

    content: bytes
    codes: NDArray[np.uint8]
    breaks: Positions
    quotes: Positions
    commas: Positions
    starts: Positions
    stops: Positions
    ends: Positions
    complete: int

    def column(self, number: int) -> list[bytes]:
        """This field of each record, counted from 0, without surrounding quotes. All records must have it."""
        if not self.quotes.size and not self.commas.size:
            lines = self.content[: self.complete].splitlines()
            return lines if len(lines) == self.starts.size else [line for line in lines if line]
        starts, stops = self.trim_quotes(*self.fields(number))
        fields = [self.content[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        if b'""' in self.content:
            return [field.replace(b'""', b'"') for field in fields]
        return fields

    def fields(self, number: int) -> tuple[Positions, Positions]:
        """This field's starts and ends in all records, with quotes. A record without it has it at its end."""
        if not self.commas.size:
            return (self.stops if number else self.starts), self.stops
        if not number:
            first = self.commas.take(self.commas.searchsorted(self.starts), mode="clip")
            return self.starts, np.where((first >= self.starts) & (first < self.stops), first, self.stops)
        before = self.commas.searchsorted(self.starts) + number - 1
        starts = np.minimum(self._comma_or_stop(before) + 1, self.stops)
        return starts, self._comma_or_stop(before + 1)

    def _comma_or_stop(self, numbers: Positions) -> Positions:
        """The commas with these numbers if they are in the record, otherwise its end."""
        commas = self.commas.take(numbers, mode="clip")
        return np.where((numbers < self.commas.size) & (commas < self.stops), commas, self.stops)

    def trim_quotes(self, starts: Positions, stops: Positions) -> tuple[Positions, Positions]:
        """The starts and ends of these fields within their quotes."""
        quoted = self.codes[starts] == QUOTE
        return starts + quoted, stops - quoted

    def record(self, number: int) -> list[bytes]:
        commas = self.commas[
            self.commas.searchsorted(self.starts[number]) : self.commas.searchsorted(self.stops[number])
        ]
        starts = np.concatenate((self.starts[number : number + 1], commas + 1))
        within = zip(*self.trim_quotes(starts, np.append(commas, self.stops[number])), strict=True)
        return [self.content[start:stop].replace(b'""', b'"') for start, stop in within]


def lay_out(content: bytes, *, skip_commas: bool = False) -> Layout:
    """The layout of a piece that begins where a record may begin and ends anywhere; lines of only commas and quotes are
    records unless `skip_commas`.

    A CR at the very end is no line end yet, because an LF may follow.
    """
    codes = np.frombuffer(content, np.uint8)
    breaks = _line_ends(content, codes)
    quotes = _places_of(codes, QUOTE) if b'"' in content else _NONE
    last_bytes = _outside(quotes, breaks)
    ends = last_bytes + 1
    starts = np.concatenate(([0], ends[:-1])) if ends.size else ends
    stops = _stops(content, codes, last_bytes)
    commas = _outside(quotes, _places_of(codes, COMMA)) if b"," in content else _NONE
    # A spreadsheet that quotes all cells leaves lines of "","" behind.
    empty = _count_within((commas, quotes), starts, stops) if skip_commas else 0
    if skip_commas and quotes.size:
        empty = empty - _count_within((quotes[::2][doubled_quotes(quotes)],), starts, stops)
    written = stops - starts > empty
    return Layout(
        content=content,
        codes=codes,
        breaks=breaks,
        quotes=quotes,
        commas=commas,
        starts=starts[written],
        stops=stops[written],
        ends=ends[written],
        complete=int(ends[-1]) if ends.size else 0,
    )


def doubled_quotes(quotes: Positions) -> NDArray[np.bool_]:
    """A flag for each apparently opening quote (every other one, from the first): it is the second of a pair inside a
    field."""
    openings, closings = quotes[::2], quotes[1::2]
    doubled = np.zeros(openings.size, np.bool_)
    doubled[1:] = openings[1:] == closings[: openings.size - 1] + 1
    return doubled


def _count_within(places: Iterable[Positions], starts: Positions, stops: Positions) -> Positions:
    counts: Positions = sum((at.searchsorted(stops) - at.searchsorted(starts) for at in places), np.zeros_like(starts))
    return counts


def _places_of(codes: NDArray[np.uint8], code: int) -> Positions:
    return np.flatnonzero(codes == code)


def _line_ends(content: bytes, codes: NDArray[np.uint8]) -> Positions:
    line_feeds = _places_of(codes, LF) if b"\n" in content else _NONE
    if b"\r" not in content:
        return line_feeds
    returns = _places_of(codes[:-1], CR)
    alone = returns[codes[returns + 1] != LF]
    return np.sort(np.concatenate((line_feeds, alone))) if alone.size else line_feeds


def _stops(content: bytes, codes: NDArray[np.uint8], last_bytes: Positions) -> Positions:
    if b"\r" not in content:
        return last_bytes
    stops: Positions = last_bytes - ((codes[last_bytes] == LF) & (codes[last_bytes - 1] == CR))
    return stops


def _outside(quotes: Positions, positions: Positions) -> Positions:
    return positions[quotes.searchsorted(positions) % 2 == 0] if quotes.size else positions


MAX_RECORD_BYTES = 1024 * 1024
MAX_ID_BYTES = 1024
_BEFORE_OPENING = np.isin(np.arange(256), (COMMA, LF, CR))
_BEHIND_CLOSING = np.isin(np.arange(256), (COMMA, LF, CR, QUOTE))


class Flaw(Struct, frozen=True):
    """The fault `what`, its place `where`, and the place where it is found; both are positions in the layout's
    content."""

    what: str
    where: int
    found: int


class _Judged(Struct, frozen=True, eq=False):
    """The records to check; the last may be one that never ends, up to `upto`."""

    layout: Layout
    starts: Positions
    stops: Positions
    columns: int | None
    chosen: Chosen | None
    upto: int


def first_flaw(
    layout: Layout, columns: int | None, chosen: Chosen | None, *, record_bytes: int, ended: bool
) -> Flaw | None:
    """The first flaw of the records that are complete or can never be, or `None`.

    Each must have as many `columns` (any number if `None`), an id in the `chosen` one that is not too long (if it is
    known) and, with its line end, at most `record_bytes`. If the file has `ended`, nothing may follow the last complete
    line.
    """
    endless = _endless(layout, record_bytes, ended=ended)
    judged = _judge(layout, columns, chosen, endless)
    # If two flaws are at one place, the first is reported: an endless record hides the rest.
    flaws = [*([endless] if endless else ()), *(flaw for check in _CHECKS for flaw in check(judged))]
    return min(flaws, key=attrgetter("found"), default=None)


def _judge(layout: Layout, columns: int | None, chosen: Chosen | None, endless: Flaw | None) -> _Judged:
    if endless is None or endless.found <= layout.complete:
        return _Judged(layout, layout.starts, layout.stops, columns, chosen, layout.complete)
    starts, stops = np.append(layout.starts, layout.complete), np.append(layout.stops, endless.found)
    return _Judged(layout, starts, stops, columns, chosen, endless.found)


def _endless(layout: Layout, record_bytes: int, *, ended: bool) -> Flaw | None:
    begins = np.append(layout.starts, layout.complete)
    lengths = np.append(layout.ends, len(layout.content)) - begins
    if (too_long := np.flatnonzero(lengths > record_bytes)).size:
        begin = int(begins[too_long[0]])
        quote = _open_quote(layout, begin + record_bytes)
        if quote is None:
            return Flaw(f"a line longer than {record_bytes:,} bytes", begin, begin + record_bytes)
        return Flaw(f"a quote that is not closed within {record_bytes:,} bytes", quote, begin + record_bytes)
    if ended and (quote := _open_quote(layout, len(layout.content))) is not None:
        return Flaw("a quote that is never closed", quote, len(layout.content))
    return None


def _open_quote(layout: Layout, at: int) -> int | None:
    quotes = layout.quotes[: layout.quotes.searchsorted(at)]
    if quotes.size % 2 == 0:
        return None
    return int(quotes[::2][~doubled_quotes(quotes)][-1])


def _nul(judged: _Judged) -> Iterator[Flaw]:
    at = judged.layout.content.find(b"\0", 0, judged.upto)
    if at >= 0:
        yield Flaw("a NUL byte", at, at)


def _bad_encoding(judged: _Judged) -> Iterator[Flaw]:
    content = judged.layout.content
    if content.isascii():
        return
    try:
        # The decoding is not final, because an endless record may be cut in the middle of a character.
        utf_8_decode(memoryview(content)[: judged.upto], "strict", False)
    except UnicodeDecodeError as error:
        begins_none = error.reason == "invalid start byte"
        yield Flaw("invalid UTF-8", error.start, error.start if begins_none else error.end)


def _stray_quotes(judged: _Judged) -> Iterator[Flaw]:
    quotes = judged.layout.quotes[: judged.layout.quotes.searchsorted(judged.upto)]
    if not quotes.size:
        return
    codes, openings, behind = judged.layout.codes, quotes[::2], quotes[1::2] + 1
    at_start = (openings == 0) | _BEFORE_OPENING[codes[openings - 1]]
    for at in openings[~(at_start | doubled_quotes(quotes))][:1].tolist():
        yield Flaw("a quote inside a field that does not begin with one", at, at)
    for at in behind[~_BEHIND_CLOSING[codes[behind]]][:1].tolist():
        yield Flaw("neither a comma nor a line end behind a closing quote", at, at)


def _uneven_columns(judged: _Judged) -> Iterator[Flaw]:
    commas, wanted = judged.layout.commas, judged.columns
    if wanted is None or (wanted == 1 and not commas.size):
        return
    first = commas.searchsorted(judged.starts)
    columns = commas.searchsorted(judged.stops) - first + 1
    for index in np.flatnonzero(columns != wanted)[:1].tolist():
        start, stop = int(judged.starts[index]), int(judged.stops[index])
        if columns[index] > wanted:
            yield Flaw(f"more columns than the first line's {wanted}", start, int(commas[first[index] + wanted - 1]))
        else:
            yield Flaw(f"fewer columns than the first line's {wanted}", start, stop)


def _bad_ids(judged: _Judged) -> Iterator[Flaw]:
    layout, chosen = judged.layout, judged.chosen
    if chosen is None:
        return
    starts, stops = layout.fields(chosen.ids)
    for index in np.flatnonzero(stops - starts > MAX_ID_BYTES)[:1].tolist():
        what = f'a value in the column "{chosen.name}"' if chosen.name else "an id"
        yield Flaw(f"{what} longer than {MAX_ID_BYTES:,} bytes", int(starts[index]), int(layout.stops[index]))


_CHECKS: tuple[Callable[[_Judged], Iterator[Flaw]], ...] = (
    _bad_encoding,
    _nul,
    _stray_quotes,
    _uneven_columns,
    _bad_ids,
)
