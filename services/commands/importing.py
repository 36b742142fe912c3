"""`carillon import …`: the command line of imports."""

from collections.abc import Callable, Coroutine
from typing import Any, TextIO

import click

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
        from services.commands.import_marathon.command import import_and_tell

        settings = settings_of(context)
        run_async(import_and_tell(settings, source, scheduled=scheduled, dry_run=dry_run, strict=strict, report=report))

    return group
