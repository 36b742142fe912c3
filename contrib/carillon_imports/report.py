"""The report of an import: a verdict on each thing, the progress, and the sums."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TextIO

import click
import msgspec
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

STARTS_HERE = "starts here"
"""The note of a job that was imported to start here: from then on it belongs to Carillon."""


class Fate(StrEnum):
    BROUGHT = "brought"
    UPDATED = "updated"
    AS_BEFORE = "as before"
    LEFT = "left"
    SKIPPED = "skipped"


class ImportVerdict(Struct, frozen=True):
    """The fate of a thing, with a reason if people should know it or have to act."""

    fate: Fate
    reason: str = ""


_TWICE = "unless they are stopped there before their time, both systems send them"
BROUGHT = ImportVerdict(Fate.BROUGHT)
BROUGHT_TO_START = ImportVerdict(Fate.BROUGHT, f"start here now; {_TWICE}")
STARTS_TWICE = ImportVerdict(Fate.LEFT, f"were brought to start here and are not stopped there; {_TWICE}")
UPDATED = ImportVerdict(Fate.UPDATED)
AS_BEFORE = ImportVerdict(Fate.AS_BEFORE)
DELETED_HERE = ImportVerdict(Fate.LEFT, "was deleted here since it was brought: it does not come back")
CHANGED_BOTH = ImportVerdict(Fate.LEFT, "was changed here and there since it was brought: what is here stays")
CHANGED_MEANWHILE = ImportVerdict(Fate.LEFT, "was changed here during the import: import again")
NOT_OURS = ImportVerdict(Fate.SKIPPED, "another one of this name or id is here already, and no import brought it")


def digest(value: object, *, without: tuple[str, ...] = ()) -> str:
    """The digest of a thing, which differs for a later version. Empty fields do not count, so a new field of a later
    release changes nothing."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    present = {name: field for name, field in fields.items() if field and name not in without}
    return hashlib.sha256(msgspec.json.encode(present, order="deterministic")).hexdigest()


def verdict(there: str, here: str | None, noted: str | None, *, behind: bool = False) -> ImportVerdict:
    """Decide by the digests of the thing at the source, here, and as imported. `behind`: it has the digest of the
    source and still lacks something."""
    if here is None:
        return BROUGHT if noted is None else DELETED_HERE
    if here == there:
        return UPDATED if behind else AS_BEFORE
    if noted is None:
        return NOT_OURS
    if here == noted:
        return UPDATED
    return AS_BEFORE if there == noted else CHANGED_BOTH


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


EXAMPLES = 10
MAX_REASONS = 40
OTHER_REASONS = "for other reasons (--report names each)"
_TITLES = {
    Fate.SKIPPED: "Skipped",
    Fate.LEFT: "Left as they are here",
    Fate.BROUGHT: "Brought, with something to see to",
}


class Thing(Struct, frozen=True):
    """One row: its table, its id and its display name."""

    table: str
    id: str
    name: str


class ImportTally:
    """Counts by table and fate, with a few examples for each reason."""

    def __init__(self, record: TextIO | None = None) -> None:
        self._record = record
        self._counts: Counter[tuple[str, Fate]] = Counter()
        self._reasons: Counter[tuple[Fate, str, str]] = Counter()
        self._examples: dict[tuple[Fate, str, str], list[Thing]] = {}

    def add(self, thing: Thing, verdict: ImportVerdict) -> None:
        self._counts[thing.table, verdict.fate] += 1
        if verdict.fate is not Fate.AS_BEFORE and self._record is not None:
            line = {"table": thing.table, "id": thing.id, "name": thing.name, "outcome": verdict.fate.value}
            print(json.dumps(line | ({"reason": verdict.reason} if verdict.reason else {})), file=self._record)
        if verdict.reason:
            key = self._key(thing, verdict)
            self._reasons[key] += 1
            examples = self._examples.setdefault(key, [])
            if len(examples) < EXAMPLES:
                examples.append(thing)

    def count(self, fate: Fate, table: str = "") -> int:
        """The number of things of one table, or of all, with this fate."""
        return sum(count for (name, which), count in self._counts.items() if which is fate and table in {"", name})

    def text(self, tables: Sequence[str]) -> str:
        return "\n".join([*self._table(tables), *(line for fate in _TITLES for line in self._reason_lines(fate))])

    def _key(self, thing: Thing, verdict: ImportVerdict) -> tuple[Fate, str, str]:
        key = (verdict.fate, thing.table, verdict.reason)
        if key in self._reasons or len(self._reasons) < MAX_REASONS:
            return key
        return (verdict.fate, thing.table, OTHER_REASONS)

    def _table(self, tables: Sequence[str]) -> Iterator[str]:
        width = 12
        yield " " * width + "".join(f"{fate.value:>{width}}" for fate in Fate)
        for table in tables:
            yield f"{table:<{width}}" + "".join(f"{self.count(fate, table):>{width},}" for fate in Fate)

    def _reason_lines(self, fate: Fate) -> Iterator[str]:
        chosen = [(key, count) for key, count in self._reasons.items() if key[0] is fate]
        if chosen:
            yield f"\n{_TITLES[fate]}:"
        for key, count in chosen:
            _, table, reason = key
            yield f"  {table} ({count:,}): {printable(reason)}"
            for thing in self._examples[key]:
                yield f"    {printable(thing.name)}  {thing.id}"
            if count > EXAMPLES:
                yield f"    and {count - EXAMPLES:,} more: --report names each"


def printable(text: str) -> str:
    """Replace characters that would move a terminal's cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)
