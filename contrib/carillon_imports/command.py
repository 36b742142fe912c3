"""`carillon import …`: the command line of imports."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TextIO

import click

from shared.runtime.settings import Settings

Read = Callable[[click.Context], Settings]
Run = Callable[[Coroutine[Any, Any, int]], None]

_dry_run = click.option("--dry-run", is_flag=True, help="Look and tell, and write nothing.")
_strict = click.option("--strict", is_flag=True, help="Exit with 1 when something was skipped.")
_report = click.option(
    "--report",
    type=click.File("w", encoding="utf-8"),
    help="A file for a line of JSON about each thing that was not as before.",
)


def _common(command: Callable[..., None]) -> Callable[..., None]:
    return _dry_run(_strict(_report(command)))


def import_group(settings_of: Read, run_async: Run) -> click.Group:
    """The group of commands; its command line reads the settings and runs the work."""

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
    @_common
    @click.pass_context
    def marathon(
        context: click.Context, source: str, *, scheduled: bool, dry_run: bool, strict: bool, report: TextIO | None
    ) -> None:
        """Bring apps, users, templates and jobs from a Marathon database, with their ids. Safe to repeat.

        Jobs that have ended come as history. With --scheduled, those whose start lies ahead will start here: stop
        Marathon's workers first, or both send them. Others that have not ended are named. Things that were changed or
        deleted here since an earlier import stay as they are here.
        """
        from carillon_imports.carry import ImportOptions, import_and_tell
        from carillon_imports.marathon import TABLES, bring

        settings, options = settings_of(context), ImportOptions(dry_run=dry_run, strict=strict, record=report)
        work = partial(bring, source, options=options, scheduled=scheduled)
        run_async(import_and_tell(settings, work, options, source=source, tables=TABLES))

    @group.command("routemaster", short_help="Bring tokens, topics' owners and subscriptions from a Routemaster.")
    @click.option("--url", required=True, envvar="ROUTEMASTER_URL", show_envvar=True, help="Where it answers.")
    @click.option(
        "--root-key",
        envvar="ROUTEMASTER_ROOT_KEY",
        show_envvar=True,
        metavar="KEY",
        help="Its root's key. On the command line everybody on this machine can read it.",
    )
    @click.option(
        "--root-key-file", type=click.File(encoding="utf-8"), help="The file that holds this key alone; - for stdin."
    )
    @_common
    @click.pass_context
    def routemaster(
        context: click.Context,
        url: str,
        root_key: str | None,
        root_key_file: TextIO | None,
        *,
        dry_run: bool,
        strict: bool,
        report: TextIO | None,
    ) -> None:
        """Bring tokens, topics' owners and subscriptions from a Routemaster that runs. Safe to repeat.

        Clients keep their tokens, and their subscriptions collect from now on; nothing is changed there. Events that
        wait there, counts and health stay behind. Things that were changed or deleted here since an earlier import stay
        as they are here.
        """
        from carillon_imports.carry import ImportOptions, import_and_tell
        from carillon_imports.routemaster import TABLES, bring

        key = root_key_file.read().strip() if root_key_file is not None else root_key
        if not key:
            raise click.UsageError("which key? ROUTEMASTER_ROOT_KEY, --root-key-file or --root-key")
        settings, options = settings_of(context), ImportOptions(dry_run=dry_run, strict=strict, record=report)
        work = partial(bring, url, key, options=options)
        run_async(import_and_tell(settings, work, options, source=url, tables=TABLES))

    return group
