"""An import as a command: it opens capabilities, imports, and prints the report."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TextIO

import click
from msgspec import Struct

from carillon_imports.report import ImportTally
from carillon_imports.verdicts import Fate
from services import connections
from services.connections import Capabilities
from shared.domain.errors import Refused
from shared.runtime import logs
from shared.runtime.masking import without_secrets
from shared.runtime.settings import Settings


class ImportOptions(Struct, frozen=True, kw_only=True):
    """The options of every import. `record` gets a line of JSON for each thing that was not as before; with `strict`,
    nothing may be skipped."""

    dry_run: bool = False
    strict: bool = False
    record: TextIO | None = None


Bring = Callable[[Capabilities], Awaitable[ImportTally]]
"""Imports with these capabilities."""


async def import_and_tell(
    settings: Settings, bring: Bring, options: ImportOptions, *, source: str, tables: Sequence[str]
) -> int:
    """Import, and print the report about these tables of `source`, a URL; returns the exit code. Raises `Refused` if
    something was skipped despite `strict`."""
    logs.set_up(settings.logs, service="import")
    capabilities = connections.Capabilities(settings, service="import")
    try:
        tally = await bring(capabilities)
    finally:
        await capabilities.close()
    which = without_secrets(source)
    title = f"What would come from {which}; nothing was written:" if options.dry_run else f"From {which}:"
    click.echo(f"{title}\n\n{tally.text(tables)}")
    skipped = tally.count(Fate.SKIPPED)
    if options.strict and skipped:
        raise Refused(f"{skipped:,} were skipped")
    return 0
