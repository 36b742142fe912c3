"""The places of the records in a piece of a CSV file.

The grammar is RFC 4180's, with LF, CRLF and CR as line ends, also mixed. A field that begins with a quote ends at its
closing quote and may contain commas, line ends and doubled quotes. A blank line is no record; nor, in a file with named
columns, is a line of only commas and quotes, which spreadsheets leave behind.

No loop over bytes: numpy finds the positions of quotes, commas and line ends, and a position with an odd number of
quotes before it is inside quotes. That holds if all quotes are at valid places, which `csv_flaws` checks.
"""

from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

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
