"""How the demo shows a running job, and what an act has proven."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_LINE_SECONDS = 1.0


class Moment(Struct, frozen=True):
    """How far a job is: records sent by it, read by the receiver, and the receiver's answers counted on the job."""

    sent: int
    received: int
    counted: int


class Display(Protocol):
    """Shows how far a job is."""

    def show(self, moment: Moment) -> None:
        """Show this moment."""

    def say(self, sentence: str) -> None:
        """Print something that has happened."""


class Lines:
    """Shows a line now and then, for logs and pipes."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._begun = time.monotonic()
        self._next = 0.0
        self._last = Moment(0, 0, 0)

    def show(self, moment: Moment) -> None:
        since = time.monotonic() - self._begun
        finished = moment == Moment(self._total, self._total, self._total)
        if moment == self._last or (since < self._next and not finished):
            return
        self._last, self._next = moment, since + _LINE_SECONDS
        click.echo(f"  {since:5.1f} s  sent {moment.sent:,}, received {moment.received:,}, counted {moment.counted:,}")

    def say(self, sentence: str) -> None:
        click.echo(f"  {sentence}")


class Bars:
    """Shows moving bars, for terminals."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._bars = [progress.add_task(name, total=total) for name in ("records sent", "received", "answers counted")]

    def show(self, moment: Moment) -> None:
        for bar, done in zip(self._bars, (moment.sent, moment.received, moment.counted), strict=True):
            self._progress.update(bar, completed=done)

    def say(self, sentence: str) -> None:
        self._progress.console.print(f"  {sentence}", highlight=False)


@contextmanager
def display(total: int) -> Iterator[Display]:
    """Bars on a terminal, lines elsewhere."""
    console = Console()
    if not console.is_terminal:
        yield Lines(total)
        return
    columns = (TextColumn("  {task.description:<16}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield Bars(progress, total)


class Proof(Struct, frozen=True):
    """A promise with the figures that were seen, and the faults that contradict it."""

    promise: str
    faults: list[str] = []


def prove(promise: str, *checks: tuple[bool, str]) -> Proof:
    """The promise, with the sentence of each check that is true as a fault."""
    return Proof(promise, [sentence for is_wrong, sentence in checks if is_wrong])


def show_proofs(proofs: list[Proof]) -> bool:
    """Print each proof. Returns whether all promises were kept."""
    for proof in proofs:
        if not proof.faults:
            click.echo(f"  {click.style('✓', fg='green', bold=True)} {proof.promise}")
        for sentence in proof.faults:
            click.echo(f"  {click.style('✗', fg='red', bold=True)} {sentence}", err=True)
    return not any(proof.faults for proof in proofs)
