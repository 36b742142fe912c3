"""The progress of an import: moving bars on a terminal, a line for each table elsewhere. Both go to stderr, so that
stdout has only the report."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Show = Callable[[str, int], None]
"""Shows how many rows of a table are done."""


@contextmanager
def display(totals: Mapping[str, int]) -> Iterator[Show]:
    """Bars on a terminal; elsewhere, for logs and pipes, a line for each quarter of a table."""
    console = Console(stderr=True)
    if not console.is_terminal:
        following: dict[str, float] = {}

        def show_line(table: str, done: int) -> None:
            total = totals[table]
            if done >= min(total, following.get(table, total / 4)):
                following[table] = done + total / 4
                click.echo(f"{table}: {done:,} of {total:,}", err=True)

        yield show_line
        return
    columns = (TextColumn("{task.description:<10}"), BarColumn(40), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bars = {table: progress.add_task(table, total=total) for table, total in totals.items()}
        yield lambda table, done: progress.update(bars[table], completed=done)
