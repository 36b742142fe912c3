"""What an import did, counted while it goes on and told at the end; every single thing on request, as JSON lines."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import TextIO

from msgspec import Struct

from services.commands.import_marathon.verdicts import Fate, ImportVerdict

EXAMPLES = 10
MAX_REASONS = 40
OTHER_REASONS = "for other reasons (--report names each)"
_TITLES = {
    Fate.SKIPPED: "Skipped",
    Fate.LEFT: "Left as they are here",
    Fate.BROUGHT: "Brought, with something to see to",
}


class Thing(Struct, frozen=True):
    """One row: its table, its id, and what people call it."""

    table: str
    id: str
    name: str


class ImportTally:
    """Counts by table and outcome, with a few examples for each reason."""

    def __init__(self, record: TextIO | None = None) -> None:
        self._record = record
        self._counts: Counter[tuple[str, Fate]] = Counter()
        self._reasons: Counter[tuple[Fate, str, str]] = Counter()
        self._examples: dict[tuple[Fate, str, str], list[Thing]] = {}

    def add(self, thing: Thing, verdict: ImportVerdict) -> None:
        """Count one thing."""
        self._counts[thing.table, verdict.outcome] += 1
        if verdict.outcome is not Fate.AS_BEFORE and self._record is not None:
            line = {"table": thing.table, "id": thing.id, "name": thing.name, "outcome": verdict.outcome.value}
            print(json.dumps(line | ({"reason": verdict.reason} if verdict.reason else {})), file=self._record)
        if verdict.reason:
            key = self._key(thing, verdict)
            self._reasons[key] += 1
            examples = self._examples.setdefault(key, [])
            if len(examples) < EXAMPLES:
                examples.append(thing)

    def count(self, outcome: Fate, table: str = "") -> int:
        """How many things had this outcome, of one table or of all."""
        return sum(count for (each, which), count in self._counts.items() if which is outcome and table in {"", each})

    def text(self, tables: tuple[str, ...]) -> str:
        """The table of counts, and what was not brought, by reason."""
        return "\n".join([*self._table(tables), *(line for outcome in _TITLES for line in self._reason_lines(outcome))])

    def _key(self, thing: Thing, verdict: ImportVerdict) -> tuple[Fate, str, str]:
        key = (verdict.outcome, thing.table, verdict.reason)
        if key in self._reasons or len(self._reasons) < MAX_REASONS:
            return key
        return (verdict.outcome, thing.table, OTHER_REASONS)

    def _table(self, tables: tuple[str, ...]) -> Iterator[str]:
        width = 12
        yield " " * width + "".join(f"{outcome.value:>{width}}" for outcome in Fate)
        for table in tables:
            yield f"{table:<{width}}" + "".join(f"{self.count(outcome, table):>{width},}" for outcome in Fate)

    def _reason_lines(self, outcome: Fate) -> Iterator[str]:
        chosen = [(key, count) for key, count in self._reasons.items() if key[0] is outcome]
        if chosen:
            yield f"\n{_TITLES[outcome]}:"
        for key, count in chosen:
            _, table, reason = key
            yield f"  {table} ({count:,}): {printable(reason)}"
            for thing in self._examples[key]:
                yield f"    {printable(thing.name)}  {thing.id}"
            if count > EXAMPLES:
                yield f"    and {count - EXAMPLES:,} more: --report names each"


def printable(text: str) -> str:
    """The text without what would move a terminal's cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)
