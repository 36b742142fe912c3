"""Tables that fit the terminal. Elsewhere they are as wide as needed, and complete."""

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from services.cli.output.text import paint, shorten, shorten_id, visible, width_of

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
    """A column of states, in their colours."""
    return TableColumn(title, cell, "word", lambda row: STATE_COLOURS.get(cell(row), ""))


class _Fitted(Struct, frozen=True):
    """A column of this `width`, which may shrink to `least`."""

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
