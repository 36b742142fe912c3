"""`carillon minutes`."""

from collections.abc import Sequence

import click

from services.cli import options
from services.cli.output.tables import Json, TableColumn
from services.cli.session import Session
from services.cli.verb import noun

minutes = noun("minutes")

MOST = 8 * 24 * 60


@minutes.verb("list")
@click.option(
    "--minutes",
    type=options.Count(1, MOST),
    metavar="N",
    default=60,
    show_default=True,
    help="Number of minutes to look back.",
)
def list_minutes(session: Session, minutes: int) -> None:
    """List the work of each minute, the oldest first. It counts pushes, messages, scheduled calls and deliveries.
    Minutes without any are left out."""
    columns = (
        TableColumn("FROM", lambda minute: session.out.when(minute["at"]), "word"),
        TableColumn("PUSHES", lambda minute: minute["recipients"].get("sent", 0), "number"),
        TableColumn("MESSAGES", lambda minute: minute.get("messages", {}).get("accepted", 0), "number"),
        TableColumn("CALLS", lambda minute: count_calls([minute]), "number"),
        TableColumn("DELIVERIES", lambda minute: minute.get("deliveries", {}).get("success", 0), "number"),
        TableColumn("FAILED", _count_failed, "number"),
        TableColumn("RETRIES", lambda minute: minute["retries"], "number"),
        TableColumn("DEAD", lambda minute: minute["deadLetters"], "number"),
        TableColumn("REQUESTS", lambda minute: minute["requests"], "number"),
        TableColumn("5XX", lambda minute: minute["serverErrors"], "number"),
        TableColumn("FEEDBACK", lambda minute: minute["feedback"], "number"),
    )
    session.out.show_list(session.api.get("minutes", minutes=minutes), columns, id="at", limit=0)


def count_calls(minutes: Sequence[Json]) -> int:
    """How many scheduled calls reached their target; an attempt that failed is none."""
    fired = [pair for minute in minutes for pair in minute.get("fired", {}).items()]
    return sum(count for kind, count in fired if kind.endswith("/fired"))


def _count_failed(minute: Json) -> int:
    """The devices and messages that were refused. Calls that fail are retries or dead letters."""
    failed: int = minute["recipients"].get("failed", 0) + minute.get("messages", {}).get("refused", 0)
    return failed
