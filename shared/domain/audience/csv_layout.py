"""Where the records of a piece of a CSV file lie.

The grammar is RFC 4180's, with LF, CRLF and CR as line ends, also mixed. A field that begins with a quote goes on to
its closing quote and may hold commas, line ends and doubled quotes. A blank line is no record.

Nothing is looked at byte by byte: positions of quotes, commas and line ends are found by numpy, and whatever has an odd
number of quotes before it stands inside quotes. That holds as far as all quotes stand where they may, which `csv_flaws`
checks.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

QUOTE, COMMA, LF, CR = b'",\n\r'

Positions = NDArray[np.intp]
_NONE: Positions = np.empty(0, np.intp)


class Layout(Struct, frozen=True, eq=False):
    """Positions in `content`, which begins where a record may begin; all ascending.

    `breaks` are the last bytes of line ends, `commas` those between fields. Record i has its first byte at `starts[i]`,
    its line end at `stops[i]`, and the next line at `ends[i]`. Behind `complete` no record has ended yet.
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

    def first_columns(self) -> list[bytes]:
        """The first field of each record, without the quotes around it."""
        if not self.quotes.size and not self.commas.size:
            lines = self.content[: self.complete].splitlines()
            return lines if len(lines) == self.starts.size else [line for line in lines if line]
        starts, stops = self.starts, self.first_stops()
        quoted = self.codes[starts] == QUOTE
        within = zip((starts + quoted).tolist(), (stops - quoted).tolist(), strict=True)
        fields = [self.content[start:stop] for start, stop in within]
        if b'""' in self.content:
            return [field.replace(b'""', b'"') for field in fields]
        return fields

    def first_stops(self) -> Positions:
        """Where the first field of each record ends."""
        if not self.commas.size:
            return self.stops
        first = self.commas.take(self.commas.searchsorted(self.starts), mode="clip")
        return np.where((first >= self.starts) & (first < self.stops), first, self.stops)


def lay_out(content: bytes) -> Layout:
    """The layout of what begins where a record may begin and ends anywhere.

    A CR at the very end is no line end yet, as an LF may follow.
    """
    codes = np.frombuffer(content, np.uint8)
    breaks = _line_ends(content, codes)
    quotes = _places_of(codes, QUOTE) if b'"' in content else _NONE
    last_bytes = _outside(quotes, breaks)
    ends = last_bytes + 1
    starts = np.concatenate(([0], ends[:-1])) if ends.size else ends
    stops = _stops(content, codes, last_bytes)
    written = stops > starts
    return Layout(
        content=content,
        codes=codes,
        breaks=breaks,
        quotes=quotes,
        commas=_outside(quotes, _places_of(codes, COMMA)) if b"," in content else _NONE,
        starts=starts[written],
        stops=stops[written],
        ends=ends[written],
        complete=int(ends[-1]) if ends.size else 0,
    )


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
    """Where the line ends with these last bytes begin."""
    if b"\r" not in content:
        return last_bytes
    stops: Positions = last_bytes - ((codes[last_bytes] == LF) & (codes[last_bytes - 1] == CR))
    return stops


def _outside(quotes: Positions, positions: Positions) -> Positions:
    return positions[quotes.searchsorted(positions) % 2 == 0] if quotes.size else positions
