"""Watching long work: a bar on a terminal, a line a second elsewhere, both on stderr. Lists are redrawn on stdout."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import datetime
from io import StringIO
from typing import TYPE_CHECKING, NoReturn, Protocol

import click
from msgspec import Struct

from services.cli.output import format_share, group_digits, visible, width_of

if TYPE_CHECKING:
    from rich.progress import Progress

PERIOD_SECONDS = 1.0
REDRAW_SECONDS = 2.0


class Glance(Struct, frozen=True, kw_only=True):
    """The progress of something: `done` of `total` things, and details. `over`: nothing more will come."""

    title: str
    state: str
    done: int
    total: int
    details: str = ""
    over: bool = False


class Drawing(Protocol):
    """Replaces the last drawing, or adds one below it."""

    def draw(self, glance: Glance) -> None: ...


def watch(look: Callable[[], Glance]) -> Glance:
    """Look and draw once a second until it is over; returns the last look."""
    with open_drawing() as drawing:
        while True:
            began = time.monotonic()
            glance = look()
            drawing.draw(glance)
            if glance.over:
                return glance
            time.sleep(max(0.0, PERIOD_SECONDS - (time.monotonic() - began)))


def redraw(draw: Callable[[], None], *, in_place: bool) -> NoReturn:
    """Draw every two seconds until Ctrl-C: on a terminal in place of the last drawing, elsewhere only new lines. An API
    that is away is asked again."""
    from carillon.errors import Unavailable

    in_place = in_place and sys.stdout.isatty()
    frame, last = _Frame(is_terminal=in_place), list[str]()
    while True:
        frame.seek(0)
        frame.truncate()
        with redirect_stdout(frame), redirect_stderr(frame):
            try:
                draw()
            except Unavailable as error:
                click.echo(visible(f"The API does not answer: {error}. It is asked again."))
        lines = frame.getvalue().splitlines()
        if in_place:
            size = shutil.get_terminal_size()
            while _count_rows(lines, size.columns) >= size.lines:
                lines.pop()
            up = f"\x1b[{_count_rows(last, size.columns)}A" if last else ""
            click.echo(f"{up}\r\x1b[J" + "\n".join(lines))
        else:
            for line in lines:
                if line not in last:
                    click.echo(line)
        last = lines
        time.sleep(REDRAW_SECONDS)


def _count_rows(lines: Sequence[str], columns: int) -> int:
    """The rows of a terminal that these lines take: long ones wrap."""
    return sum(max(1, -(-width_of(click.unstyle(line)) // columns)) for line in lines)


class _Frame(StringIO):
    """A drawing before it is shown, with the width and colours of its terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


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
    """A line for each look."""

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
    return f"{group_digits(glance.done)} of {group_digits(glance.total)}" if glance.total or glance.over else ""
