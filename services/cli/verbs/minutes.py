"""`carillon minutes`."""

import click

from services.cli.output.tables import Json, TableColumn
from services.cli.session import Session
from services.cli.verb import noun

command = noun("minutes")

MOST = 8 * 24 * 60


@command.verb("list")
@click.option(
    "--minutes", type=click.IntRange(1, MOST), default=60, show_default=True, help="How many minutes to look back."
)
def list_minutes(session: Session, minutes: int) -> None:
    """List what was done, minute by minute, the oldest first. Minutes in which nothing happened are left out."""
    columns = (
        TableColumn("FROM", lambda minute: session.out.when(minute["at"]), "word"),
        TableColumn("SENT", lambda minute: minute["recipients"].get("sent", 0), "number"),
        TableColumn("FAILED", lambda minute: minute["recipients"].get("failed", 0), "number"),
        TableColumn("FIRED", _count_fired, "number"),
        TableColumn("RETRIES", lambda minute: minute["retries"], "number"),
        TableColumn("DEAD", lambda minute: minute["deadLetters"], "number"),
        TableColumn("REQUESTS", lambda minute: minute["requests"], "number"),
        TableColumn("5XX", lambda minute: minute["serverErrors"], "number"),
        TableColumn("FEEDBACK", lambda minute: minute["feedback"], "number"),
    )
    session.out.show_list(session.api.get("minutes", minutes=minutes), columns, id="at", limit=0)


def _count_fired(minute: Json) -> int:
    return sum(minute["fired"].values())
