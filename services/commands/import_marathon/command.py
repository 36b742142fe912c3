"""`carillon import …`: the command line of an import."""

from collections.abc import Callable, Coroutine
from typing import Any, TextIO

import click

from services import connections
from services.commands.import_marathon import TABLES, Options, bring
from services.commands.import_marathon.report import ImportTally
from services.commands.import_marathon.verdicts import Fate
from shared.domain.errors import Refused
from shared.runtime import logs
from shared.runtime.masking import without_secrets
from shared.runtime.settings import Settings

Read = Callable[[click.Context], Settings]
Run = Callable[[Coroutine[Any, Any, int]], None]


def import_group(settings_of: Read, run_async: Run) -> click.Group:
    """The group of commands; the command line that it belongs to reads the settings and runs the work."""

    @click.group("import", short_help="Bring over what another system has.")
    def group() -> None:
        """Bring over what another system has."""

    @group.command("marathon", short_help="Bring apps, users, templates and jobs from a Marathon database.")
    @click.option(
        "--from",
        "source",
        required=True,
        envvar="MARATHON_URL",
        show_envvar=True,
        metavar="URL",
        help="Its PostgreSQL database: postgresql://user:password@host:port/marathon. PGPASSWORD is understood too.",
    )
    @click.option("--scheduled", is_flag=True, help="Bring jobs whose start lies ahead, to be started here.")
    @click.option("--dry-run", is_flag=True, help="Look and tell, and write nothing.")
    @click.option("--strict", is_flag=True, help="Exit with 1 when something was skipped.")
    @click.option(
        "--report",
        type=click.File("w", encoding="utf-8"),
        help="A file for a line of JSON about each thing that was not as before.",
    )
    @click.pass_context
    def marathon(
        context: click.Context, source: str, scheduled: bool, dry_run: bool, strict: bool, report: TextIO | None
    ) -> None:
        """Bring apps, users, templates and jobs from a Marathon database, with their ids. Safe to repeat.

        Jobs that have ended come as history. With --scheduled, those whose start lies ahead will start here: stop
        Marathon's workers first, or both send them. Others that have not ended are named. What was changed or deleted
        here since an earlier import stays as it is here.
        """
        settings = settings_of(context)
        logs.set_up(settings.logs, service="import")
        options = Options(scheduled=scheduled, dry_run=dry_run, record=report)
        run_async(_import(settings, source, options, strict=strict))

    return group


async def _import(settings: Settings, source: str, options: Options, *, strict: bool) -> int:
    capabilities = await connections.open_all(settings, service="import")
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
