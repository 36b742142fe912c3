"""The report of an import: counted while it runs and printed at the end; on request each thing gets a line of JSON."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TextIO

from msgspec import Struct

from carillon_imports.verdicts import Fate, ImportVerdict

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
