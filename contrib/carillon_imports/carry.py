"""Bringing one kind of things page by page: each page is read, judged, written and noted before the next one.

A thing is noted after it was written. If an import is killed in between, the next one finds the things equal and notes
them.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Generic, TypeVar

from carillon_imports.kinds import ImportedKind, Reasons
from carillon_imports.progress import Show
from carillon_imports.report import ImportTally, Thing
from carillon_imports.verdicts import (
    BROUGHT,
    CHANGED_MEANWHILE,
    STARTS_HERE,
    Fate,
    ImportVerdict,
    verdict,
)
from shared.domain.errors import Refused
from shared.store.documents import Identified
from shared.store.imports import Imports

R = TypeVar("R", bound=Identified)
T = TypeVar("T", bound=Identified)

Verdicts = dict[str, ImportVerdict]
"""The verdict on each thing, by its id."""

_HERE_AS_THERE = (Fate.BROUGHT, Fate.UPDATED, Fate.AS_BEFORE)


class Carrier(Generic[R, T]):
    """Brings the things of one kind. A dry run judges in the same way and writes nothing."""

    def __init__(self, kind: ImportedKind[R, T], imports: Imports, tally: ImportTally, *, dry_run: bool) -> None:
        self._kind = kind
        self._imports = imports
        self._tally = tally
        self._dry_run = dry_run

    async def carry(self, pages: AsyncIterator[list[R]], show: Show) -> None:
        """Bring all rows of these pages.

        Raises:
            Unavailable: a server is away. Things brought before stay.
        """
        done = 0
        async for rows in pages:
            verdicts = await self._page(rows)
            for row in rows:
                self._tally.add(
                    Thing(self._kind.name, self._kind.shown_id(row), self._kind.label(row)), verdicts[row.id]
                )
            done += len(rows)
            show(self._kind.name, done)

    async def _page(self, rows: Sequence[R]) -> Verdicts:
        ids = [row.id for row in rows]
        noted = await self._imports.find_noted(self._kind.name, ids)
        here = await self._kind.here(ids)
        verdicts, there = self._read(rows, noted)
        verdicts |= {id: self._judge(value, here.get(id), noted.get(id)) for id, value in there.items()}
        reasons = await self._kind.find_refused(_with(Fate.BROUGHT, there, verdicts))
        verdicts |= _skip(reasons)
        if not self._dry_run:
            verdicts |= await self._write(there, here, verdicts)
            await self._note(there, noted, verdicts)
        self._kind.remember(here.values())
        self._kind.remember(_with(Fate.BROUGHT, there, verdicts) + _with(Fate.UPDATED, there, verdicts))
        return verdicts

    def _read(self, rows: Sequence[R], noted: Mapping[str, str]) -> tuple[Verdicts, dict[str, T]]:
        """Verdicts that need no look at things here, and the values of the other rows."""
        verdicts: Verdicts = {}
        there: dict[str, T] = {}
        for row in rows:
            if noted.get(row.id) == STARTS_HERE:
                verdicts[row.id] = self._kind.verdict_if_started(row)
                continue
            try:
                there[row.id] = self._kind.read(row)
            except Refused as error:
                verdicts[row.id] = ImportVerdict(Fate.SKIPPED, error.reason)
        return verdicts, there

    def _judge(self, there: T, here: T | None, noted: str | None) -> ImportVerdict:
        digest = self._kind.digest
        if here is not None:
            return verdict(digest(there), digest(here), noted, behind=self._kind.behind(here, there))
        judged = verdict(digest(there), None, noted)
        return self._kind.verdict_if_new(there) if judged is BROUGHT else judged

    async def _write(self, there: Mapping[str, T], here: Mapping[str, T], verdicts: Verdicts) -> Verdicts:
        """Add and replace by the verdicts; returns those that turned out otherwise."""
        otherwise = _skip(await self._kind.add(_with(Fate.BROUGHT, there, verdicts)))
        for value in _with(Fate.UPDATED, there, verdicts):
            try:
                if not await self._kind.replace(here[value.id], value):
                    otherwise[value.id] = CHANGED_MEANWHILE
            except Refused as error:
                otherwise[value.id] = ImportVerdict(Fate.LEFT, error.reason)
        return otherwise

    async def _note(self, there: Mapping[str, T], noted: Mapping[str, str], verdicts: Verdicts) -> None:
        same = (id for id in there if verdicts[id].fate in _HERE_AS_THERE)
        notes = {id: self._kind.note(there[id]) for id in same}
        await self._imports.note(self._kind.name, {id: note for id, note in notes.items() if noted.get(id) != note})


def _skip(reasons: Reasons) -> Verdicts:
    return {id: ImportVerdict(Fate.SKIPPED, reason) for id, reason in reasons.items()}


def _with(fate: Fate, there: Mapping[str, T], verdicts: Verdicts) -> list[T]:
    return [value for id, value in there.items() if verdicts[id].fate is fate]
