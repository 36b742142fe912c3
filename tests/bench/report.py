"""Figures, their targets, and how they are printed and kept."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from msgspec import Struct


class Target(Struct, frozen=True):
    """A bound of a figure: the least that it should be, or the most."""

    bound: float
    at_most: bool = False

    def met(self, value: float) -> bool:
        """Whether the figure keeps it."""
        return value <= self.bound if self.at_most else value >= self.bound


class Figure(Struct, frozen=True):
    """One thing measured, once or several times; its median stands for it."""

    what: str
    values: Sequence[float]
    unit: str = ""
    target: Target | None = None

    def row(self) -> str:
        """One line of a Markdown table."""
        value = f"{text(median(self.values))} {self.unit}".strip()
        if len(self.values) > 1:
            value += f" ({', '.join(text(each) for each in self.values)})"
        return f"| {self.what} | {value} | {self._judged()} |"

    def _judged(self) -> str:
        if self.target is None:
            return ""
        sign = "at most" if self.target.at_most else "at least"
        verdict = "met" if self.target.met(median(self.values)) else "not met"
        return f"{sign} {text(self.target.bound)}: {verdict}"


class Measured(Struct, frozen=True):
    """What one benchmark found. `notes` are sentences: what was checked, and how it was measured."""

    title: str
    figures: Sequence[Figure]
    notes: Sequence[str] = ()

    def lines(self) -> list[str]:
        """As Markdown."""
        head = [f"### {self.title}", "", "| figure | value | target |", "| --- | --- | --- |"]
        return [*head, *(figure.row() for figure in self.figures), "", *self.notes, ""]


class Wrong(Exception):
    """What was measured did not do its work right: no speed makes up for that. `found` is what was measured before."""

    def __init__(self, reason: str, found: Sequence[Measured] = ()) -> None:
        super().__init__(reason)
        self.found = found


def text(value: float) -> str:
    """A number with some three digits that mean something."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def heading(command: str, machine: str, mongo: str) -> list[str]:
    """How a run's section of the results file begins."""
    return [
        f"## {datetime.now(UTC):%Y-%m-%d %H:%M} UTC: `{command}`",
        "",
        f"Machine: {machine}, shared by all servers, processes and the benchmark. MongoDB: {mongo}.",
        "",
    ]


def append(file: Path, lines: Sequence[str]) -> None:
    """Add a section to the end of the file."""
    earlier = file.read_text().rstrip() if file.exists() else "# Results"
    section = "\n".join(lines).rstrip()
    file.write_text(f"{earlier}\n\n{section}\n")
