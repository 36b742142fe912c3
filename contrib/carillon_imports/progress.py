"""The progress of an import: moving bars on a terminal, a line for each table elsewhere. Both go to stderr, so that
stdout has only the report."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ImportDisplay(Protocol):
    """Shows the progress of an import."""

    def show(self, table: str, done: int) -> None:
        """Show that `done` rows of this table are done."""


class ImportLines:
    """Shows each quarter of a table, for logs and pipes."""

    def __init__(self, totals: Mapping[str, int]) -> None:
        self._totals = totals
        self._next: dict[str, float] = {}

    def show(self, table: str, done: int) -> None:
        total = self._totals[table]
        if done >= min(total, self._next.get(table, total / 4)):
            self._next[table] = done + total / 4
            click.echo(f"{table}: {done:,} of {total:,}", err=True)


class ImportBars:
    """Shows moving bars, for terminals."""

    def __init__(self, progress: Progress, totals: Mapping[str, int]) -> None:
        self._progress = progress
        self._bars = {table: progress.add_task(table, total=total) for table, total in totals.items()}

    def show(self, table: str, done: int) -> None:
        self._progress.update(self._bars[table], completed=done)


@contextmanager
def display(totals: Mapping[str, int]) -> Iterator[ImportDisplay]:
    """Bars on a terminal, lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield ImportLines(totals)
        return
    columns = (TextColumn("{task.description:<10}"), BarColumn(40), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        yield ImportBars(progress, totals)
