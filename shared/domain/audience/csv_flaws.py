"""The flaws of a CSV file, and their order.

A flaw is *found* at the byte at which a sequential reader would notice it, and the first found one is reported. So the
same file gets the same error for any chunks. Complete records are checked. A record that never ends (too long, or a
quote open at the end of the file) is checked by its first bytes alone.
"""

from codecs import utf_8_decode
from collections.abc import Callable, Iterator
from operator import attrgetter

import numpy as np
from msgspec import Struct

from shared.domain.audience.csv_header import Chosen
from shared.domain.audience.csv_layout import COMMA, CR, LF, QUOTE, Layout, Positions, doubled_quotes

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
