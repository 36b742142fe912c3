"""Carry the things of another system over, kind by kind.

read ──> judge (a verdict) ──> store, unless it is a dry run ──> report
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TextIO, TypeVar

import click
from msgspec import Struct

from carillon_imports.report import (
    AS_BEFORE,
    BROUGHT,
    CHANGED_MEANWHILE,
    STARTS_HERE,
    Fate,
    ImportTally,
    ImportVerdict,
    Show,
    Thing,
    digest,
    verdict,
)
from services.wiring.servers import Servers
from shared.console.store_idempotency import Imports
from shared.core.errors import Refused
from shared.drivers.mongo.documents import Identified
from shared.runtime import logs
from shared.runtime.private import without_secrets
from shared.runtime.settings import Settings

R_contra = TypeVar("R_contra", bound=Identified, contravariant=True)
T = TypeVar("T", bound=Identified)
Reasons = dict[str, str]
"""Reasons why things cannot be added, by id."""


class ImportedKind(Protocol[R_contra, T]):
    """One kind of things to import, and the base of all kinds. `name` is the source's table or list. The digest ignores
    the fields in `left_out`."""

    name: str
    left_out: tuple[str, ...] = ()

    def label(self, row: R_contra) -> str:
        """The display name of the thing in this row."""

    def shown_id(self, row: R_contra) -> str:
        """Distinguishes the thing in this row from others with the same label."""
        return row.id

    def read(self, row: R_contra) -> T:
        """The row's value. Raises `Refused` if it cannot be imported."""

    def digest(self, value: T) -> str:
        """Differs for a later version of the value."""
        return digest(value, without=self.left_out)

    def note(self, value: T) -> str:
        """The note that is stored once the value here equals that of the source."""
        return self.digest(value)

    def verdict_if_new(self, value: T) -> ImportVerdict:
        """The verdict on a thing that is new here."""
        return BROUGHT

    def verdict_if_started(self, row: R_contra) -> ImportVerdict:
        """The verdict on a job that was imported to start here."""
        return AS_BEFORE

    def behind(self, here: T, there: T) -> bool:
        """Whether the thing here still lacks something despite the same digest."""
        return False

    async def here(self, ids: Sequence[str]) -> dict[str, T]:
        """The existing things among these, by id."""

    async def find_refused(self, new: Sequence[T]) -> Reasons:
        """The new things that cannot be added although their ids are free."""
        return {}

    async def add(self, new: Sequence[T]) -> Reasons:
        """Insert things; returns those that were not, because their id was taken meanwhile or there are too many."""

    async def replace(self, here: T, there: T) -> bool:
        """Update a thing; `False` if it was changed meanwhile. Raises `Refused` if it has to stay."""

    def remember(self, present: Iterable[T]) -> None:
        """Remember things that exist here now, or would after a dry run, if a later kind refers to them."""
        return


def taken_meanwhile(ids: Iterable[str]) -> Reasons:
    """The reason for things that were taken here since they were looked up."""
    return dict.fromkeys(ids, "its id or name was taken here during the import: import again")


R = TypeVar("R", bound=Identified)
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


class ImportOptions(Struct, frozen=True, kw_only=True):
    """The options of every import. `record` gets a line of JSON for each thing that was not as before; with `strict`,
    nothing may be skipped."""

    dry_run: bool = False
    strict: bool = False
    record: TextIO | None = None


Bring = Callable[[Servers], Awaitable[ImportTally]]
"""Imports with these servers."""


async def import_and_tell(
    settings: Settings, bring: Bring, options: ImportOptions, *, source: str, tables: Sequence[str]
) -> int:
    """Import, and print the report about these tables of `source`, a URL; returns the exit code. Raises `Refused` if
    something was skipped despite `strict`."""
    logs.set_up(settings.logs, service="import")
    servers = Servers(settings, service="import")
    try:
        tally = await bring(servers)
    finally:
        await servers.close()
    which = without_secrets(source)
    title = f"What would come from {which}; nothing was written:" if options.dry_run else f"From {which}:"
    click.echo(f"{title}\n\n{tally.text(tables)}")
    skipped = tally.count(Fate.SKIPPED)
    if options.strict and skipped:
        raise Refused(f"{skipped:,} were skipped")
    return 0
