"""Watching what takes a while: a bar on a terminal, a line a second elsewhere. Both go to stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import click
from msgspec import Struct

from services.cli.output.tables import format_share, group_digits
from services.cli.output.text import visible

if TYPE_CHECKING:
    from rich.progress import Progress

PERIOD_SECONDS = 1.0


class Glance(Struct, frozen=True, kw_only=True):
    """How far something is: `done` of `total` things, and what else there is to say. `over`: nothing more will come."""

    title: str
    state: str
    done: int
    total: int
    details: str = ""
    over: bool = False


class Drawing(Protocol):
    """Draws what there is, in the place of what was drawn before or below it."""

    def draw(self, glance: Glance) -> None: ...


def watch(look: Callable[[], Glance]) -> Glance:
    """Look once a second and draw what is there, until it is over. The last look."""
    with open_drawing() as drawing:
        while True:
            began = time.monotonic()
            glance = look()
            drawing.draw(glance)
            if glance.over:
                return glance
            time.sleep(max(0.0, PERIOD_SECONDS - (time.monotonic() - began)))


@contextmanager
def open_drawing() -> Iterator[Drawing]:
    """A bar on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[share]}", markup=False),
        TextColumn("{task.fields[numbers]}", markup=False),
        TextColumn("{task.fields[details]}", markup=False),
        console=Console(stderr=True),
        auto_refresh=False,
        expand=True,
    )
    with progress:
        yield _Bar(progress)


class _Lines:
    """A line a look."""

    def draw(self, glance: Glance) -> None:
        share = f"{_share(glance) or '-':>6}"
        words = (f"{datetime.now().astimezone():%H:%M:%S}", glance.title, glance.state, share, _numbers(glance))
        click.echo(visible("  ".join([*words, glance.details]).rstrip()), err=True)


class _Bar:
    """A bar that stays where it is."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, share="", numbers="", details="")

    def draw(self, glance: Glance) -> None:
        self._progress.update(
            self._task,
            description=visible(f"{glance.title} {glance.state}"),
            completed=glance.done,
            total=glance.total or (1 if glance.over else None),
            share=_share(glance),
            numbers=_numbers(glance),
            details=visible(glance.details),
        )
        self._progress.refresh()


def _share(glance: Glance) -> str:
    return format_share(glance.done, glance.total) if glance.total else ""


def _numbers(glance: Glance) -> str:
    return f"{group_digits(glance.done)} of {group_digits(glance.total)}"
