"""The work of `carillon import marathon`, and what it tells at the end."""

from typing import TextIO

import click

from services import connections
from services.commands.import_marathon import TABLES, Options, bring
from services.commands.import_marathon.report import ImportTally
from services.commands.import_marathon.verdicts import Fate
from shared.domain.errors import Refused
from shared.runtime import logs
from shared.runtime.masking import without_secrets
from shared.runtime.settings import Settings


async def import_and_tell(
    settings: Settings, source: str, *, scheduled: bool, dry_run: bool, strict: bool, report: TextIO | None
) -> int:
    """Import the database at the URL `source`; returns the exit code.

    Raises:
        Refused: something was skipped, and that must not be (`strict`).
    """
    logs.set_up(settings.logs, service="import")
    options = Options(scheduled=scheduled, dry_run=dry_run, record=report)
    capabilities = connections.Capabilities(settings, service="import")
    try:
        tally = await bring(source, capabilities, options)
    finally:
        await capabilities.close()
    click.echo(_report_text(tally, source, dry_run=options.dry_run))
    skipped = tally.count(Fate.SKIPPED)
    if strict and skipped:
        raise Refused(f"{skipped:,} were skipped")
    return 0


def _report_text(tally: ImportTally, source: str, *, dry_run: bool) -> str:
    which = without_secrets(source)
    title = f"What would come from {which}; nothing was written:" if dry_run else f"From {which}:"
    return f"{title}\n\n{tally.text(TABLES)}"
