"""Output of verbs: stdout has only the result, as a table, JSON or ids; everything else goes to stderr.

Tables fit the terminal; elsewhere they are as wide as needed, and complete.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from functools import cache
from itertools import islice
from typing import Any, Literal, TextIO
from zoneinfo import ZoneInfo

import click
from msgspec import Struct
from msgspec.structs import replace

from shared.core.instants import first_shown

ELLIPSIS = "…"


def visible(value: Any) -> str:
    """The value as one line of printable characters."""
    text = value if isinstance(value, str) else as_json(value)
    return text if text.isprintable() else "".join(map(_escape, text))


def as_json(value: Any) -> str:
    """The value as JSON of printable characters; others are escaped, as JSON allows."""
    import msgspec

    text = msgspec.json.encode(value).decode()
    if text.isprintable():
        return text
    compact = msgspec.json.format(text, indent=-1)  # so a line end can only be a part of a string
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in compact)


def width_of(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shorten(text: str, width: int) -> str:
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return text + ELLIPSIS


def shorten_id(text: str, width: int) -> str:
    """The head and the tail of an id, in `width` columns. A person may type it so, or only its tail (`names.pick`)."""
    if len(text) <= width:
        return text
    tail = max((width - 1) // 3, 1)
    return text[: width - 1 - tail] + ELLIPSIS + text[-tail:]


@cache
def has_colour(stream: TextIO) -> bool:
    """Whether the stream may have colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """The text in one of click's colours, if colours are shown."""
    import click

    return click.style(text, fg=colour) if colour and has_colour(stream or sys.stdout) else text


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


NANOSECONDS = 1_000_000_000
_DAYS_BACK = {"today": 0, "yesterday": 1}
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def read_wire(value: Any) -> datetime | None:
    """The instant of an API field: nanoseconds since the epoch, RFC 3339, or none (0, `""`, `null`)."""
    if not value:
        return None
    try:
        if isinstance(value, int):
            return datetime.fromtimestamp(value / NANOSECONDS, UTC)
        instant = datetime.fromisoformat(str(value))
    except (OverflowError, OSError, ValueError):
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def format_when(value: Any, *, utc: bool) -> str:
    """The instant of a field, to the second; a dash for none."""
    instant = read_wire(value)
    if instant is None:
        return "-"
    if utc:
        return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S}"


def format_ahead(value: Any, now: datetime, *, zone: str = "", utc: bool = False) -> str:
    """A coming instant in a zone (default: the reader's), in UTC, and as a distance from now."""
    instant = read_wire(value)
    if instant is None:
        return "-"
    there = instant.astimezone(UTC if utc else ZoneInfo(zone) if zone else None)
    clock = "%H:%M:%S" if instant.second else "%H:%M"
    words = [f"{there:%a %Y-%m-%d {clock}} {zone if zone and not utc else there.tzname()}"]
    if there.utcoffset():
        words.append(f"{instant.astimezone(UTC):{clock}} UTC")
    if instant > now:
        words.append(f"in {format_span((instant - now).total_seconds())}")
    return "  ".join(words)


def format_span(seconds: float) -> str:
    """A duration in two units: `3 d 4 h`, `5 min 3 s`."""
    parts: list[str] = []
    left = int(max(seconds, 0))
    for name, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or (name == "s" and not parts):
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def read_given(text: str, now: datetime) -> datetime:
    """A typed instant: RFC 3339, a time in the reader's zone, or `+10m`."""
    if text.startswith("+"):
        return now + read_span(text[1:])
    return read_local(datetime.fromisoformat(text))


def read_past(text: str, now: datetime) -> datetime:
    """A typed past instant: RFC 3339, a date or a time in the reader's zone, `today` or `yesterday` for its first
    moment, or `2h` for two hours ago."""
    if (days := _DAYS_BACK.get(text.lower())) is not None:
        return read_local(datetime.combine(now.astimezone().date() - timedelta(days=days), time()))
    if text[-1:] in UNITS:
        return now - read_span(text)
    return read_local(datetime.fromisoformat(text))


def read_local(moment: datetime) -> datetime:
    """The instant of a time with a zone, or else the first one at which this machine's clock shows it; if the clock
    skips it, the end of the gap. Raises `OverflowError` at the ends of the calendar."""
    return moment if moment.tzinfo else first_shown(moment, None)


def read_span(text: str) -> timedelta:
    """A typed duration: `90`, `90s`, `10m`, `2h`, `7d`."""
    number, unit = (text[:-1], text[-1:]) if text[-1:] in UNITS else (text, "s")
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is not a duration: use 90s, 10m, 2h or 7d")
    return timedelta(seconds=int(number) * UNITS[unit])


GAP = "  "
ID_WIDTH = 13
TEXT_WIDTH = 12
Json = Mapping[str, Any]
Kind = Literal["text", "id", "number", "word"]


class TableColumn(Struct, frozen=True):
    """A column: its title and its cells. A number is aligned right; a text and an id may be shortened, a word may not.
    A cell may have a colour."""

    title: str
    cell: Callable[[Json], Any]
    kind: Kind = "text"
    colour: Callable[[Json], str] | None = None


STATE_COLOURS: Mapping[str, str] = (
    dict.fromkeys(("completed", "delivered", "read", "done", "active", "alive"), "green")
    | dict.fromkeys(("running", "sending"), "cyan")
    | dict.fromkeys(("paused", "expired", "suspended", "refused", "unknown", "silent"), "yellow")
    | dict.fromkeys(("circuitbreak", "stopped", "failed", "invalid", "rejected", "dead", "gone"), "red")
)
"""A state has the same colour everywhere: well, under way, waiting for a person, bad. Others have none."""


def state_column(title: str, cell: Callable[[Json], str]) -> TableColumn:
    return TableColumn(title, cell, "word", lambda row: STATE_COLOURS.get(cell(row), ""))


class _Fitted(Struct, frozen=True):
    column: TableColumn
    width: int
    least: int

    def write(self, text: str, colour: str = "") -> str:
        shown = self._cut(text)
        blanks = " " * (self.width - width_of(shown))
        painted = paint(shown, colour)
        return blanks + painted if self.column.kind == "number" else painted + blanks

    def _cut(self, text: str) -> str:
        return shorten_id(text, self.width) if self.column.kind == "id" else shorten(text, self.width)


def draw_table(columns: Sequence[TableColumn], rows: Sequence[Json], *, wide: bool) -> tuple[list[str], int]:
    """The lines of a table, its head first, and the number of omitted columns."""
    cells = [[_text(column, row) for column in columns] for row in rows]
    widths = [
        max([width_of(column.title), *(width_of(row[place]) for row in cells)]) for place, column in enumerate(columns)
    ]
    room = sys.maxsize if wide else terminal_width()
    fitted = [
        _Fitted(column, widths[place], _least(column, {row[place] for row in cells}))
        for place, column in enumerate(columns)
    ]
    fitted = _fit(fitted, room)
    lines = [_line([each.write(each.column.title, "bright_black") for each in fitted])]
    for row, texts in zip(rows, cells, strict=True):
        painted = [
            each.write(text, each.column.colour(row) if each.column.colour else "")
            for each, text in zip(fitted, texts, strict=False)
        ]
        lines.append(_line(painted))
    return lines, len(columns) - len(fitted)


def draw_record(fields: Sequence[tuple[str, Any]]) -> list[str]:
    """A thing with many fields, one a line. An empty field has no line, and a list one for each of its values."""
    shown = [(title, _lines(value)) for title, value in fields]
    shown = [(title, lines) for title, lines in shown if any(lines)]
    width = max((len(title) for title, _ in shown), default=0)
    return [
        f"{paint(title if first else '', 'bright_black')}{' ' * (width - (len(title) if first else 0))}{GAP}{text}"
        for title, lines in shown
        for first, text in ((place == 0, line) for place, line in enumerate(lines))
    ]


def terminal_width() -> int:
    """The columns of the terminal; elsewhere unlimited."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def group_digits(value: Any) -> str:
    """A number with thousands separators; a dash for none."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def count_things(count: int, thing: str, things: str = "") -> str:
    """The number of things, as in "1 message" and "1,200 messages"."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {things or f'{thing}s'}"


def format_share(done: int, total: int) -> str:
    """A share in per cent, rounded down: only the whole is 100 %."""
    return f"{done * 1000 // total / 10:.1f}%"


def _text(column: TableColumn, row: Json) -> str:
    value = column.cell(row)
    return visible(group_digits(value) if column.kind == "number" else "-" if value in (None, "", {}, []) else value)


def _lines(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        return [visible(each) for each in value]
    return [] if value in (None, "", {}) else [visible(value)]


def _line(cells: Sequence[str]) -> str:
    return GAP.join(cells).rstrip()


def _fit(columns: list[_Fitted], room: int) -> list[_Fitted]:
    """Fit the columns into `room`: the widest that may be shortened loses first."""
    while (excess := _width(columns) - room) > 0:
        shrinkable = [place for place, each in enumerate(columns) if each.width > each.least]
        if not shrinkable:
            if len(columns) == 1:
                return columns
            columns = columns[:-1]
            continue
        place = max(shrinkable, key=lambda place: columns[place].width)
        each = columns[place]
        columns[place] = replace(each, width=max(each.least, each.width - min(excess, max(1, each.width // 8))))
    return columns


def _least(column: TableColumn, texts: set[str]) -> int:
    """The least width of a column with these texts. Shortened ids stay different."""
    match column.kind:
        case "id":
            width = max(ID_WIDTH, len(column.title))
            while len({shorten_id(text, width) for text in texts}) < len(texts):
                width += 1
            return width
        case "text":
            return max(TEXT_WIDTH, len(column.title))
        case _:
            return sys.maxsize


def _width(columns: Sequence[_Fitted]) -> int:
    return sum(each.width for each in columns) + len(GAP) * (len(columns) - 1)


LISTED = 100
Fields = Sequence[tuple[str, Any]]


class Output(Struct, frozen=True, kw_only=True):
    """The chosen output: `json` for the API's answer, `quiet` for ids, `wide` for unlimited tables."""

    json: bool = False
    quiet: bool = False
    wide: bool = False
    utc: bool = False

    @property
    def is_for_people(self) -> bool:
        return not (self.json or self.quiet)

    def show_list(self, items: Iterable[Json], columns: Sequence[TableColumn], *, id: str, limit: int | None) -> None:
        """Show a list: a JSON object or an id a line, or a table. Without a limit a table has the first hundred."""
        if not self.is_for_people:
            for item in items if not limit else islice(items, limit):
                self.write(as_json(item) if self.json else visible(item.get(id, "")))
            return
        most = LISTED if limit is None else limit or sys.maxsize
        found = iter(items)
        shown = list(islice(found, most))
        self.show_table(columns, shown)
        if limit is None and next(found, None) is not None:
            self.tell(f"There are more than these {most}: --limit 0 lists all.")

    def show(self, item: Json, fields: Callable[[], Fields], *, id: str) -> None:
        if self.json:
            self.write(as_json(item))
        elif self.quiet:
            self.write(visible(item.get(id, "")))
        else:
            for line in draw_record(fields()):
                self.write(line)

    def confirm(self, item: Json, sentence: str, *, id: str) -> None:
        """Write the result of a verb: the answer, its id, or a sentence."""
        if self.json:
            self.write(as_json(item))
        else:
            self.write(visible(item.get(id, "") if self.quiet else sentence))

    def when(self, value: Any) -> str:
        return format_when(value, utc=self.utc)

    def ahead(self, value: Any, zone: str = "") -> str:
        """A coming instant in a zone, by default the reader's."""
        return format_ahead(value, datetime.now(UTC), zone=zone, utc=self.utc)

    def write(self, text: str) -> None:
        click.echo(text)

    def tell(self, text: str) -> None:
        click.echo(visible(text), err=True)

    def show_table(self, columns: Sequence[TableColumn], rows: Sequence[Json]) -> None:
        """Show a table that is part of something, and has no JSON of its own."""
        if not rows:
            self.tell("None.")
            return
        lines, left_out = draw_table(columns, rows, wide=self.wide)
        for line in lines:
            self.write(line)
        if left_out:
            self.tell(f"{count_things(left_out, 'column')} left out for lack of room: --wide shows all.")
