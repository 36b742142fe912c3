"""The output of a verb: stdout has only the result, as a table, JSON or ids; everything else goes to stderr."""

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click
from msgspec import Struct

from services.cli.output.tables import Json, TableColumn, count_things, draw_record, draw_table
from services.cli.output.text import as_json, visible
from services.cli.output.times import format_ahead, format_when

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
