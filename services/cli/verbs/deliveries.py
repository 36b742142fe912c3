"""`carillon deliveries`."""

import click

from services.cli import options
from services.cli.bus_attempts import describe_last_answer, describe_sent
from services.cli.output.tables import TableColumn, state_column
from services.cli.session import Session
from services.cli.verb import noun

deliveries = noun("deliveries")


@deliveries.verb("list")
@click.argument("key", metavar="KEY")
@click.option(
    "--status", type=click.Choice(["open", "delivered", "dead", "discarded"]), help="Only those in this state."
)
@click.option("--since", type=options.SequenceOrPast(),
              help="Only those after this sequence or since this time: 17, 2h (ago), 2025-12-24.")  # fmt: skip
@options.namespace
@options.limit
def list_deliveries(
    session: Session, key: str, status: str | None, since: str | None, namespace: str, limit: int | None
) -> None:
    """List the deliveries of a subscription, newest first."""
    columns = (
        TableColumn("ID", lambda each: each["id"], "id"),
        TableColumn("SEQUENCE", lambda each: each["sequence"], "number"),
        state_column("STATUS", lambda each: each["status"]),
        TableColumn("CUT", lambda each: session.out.when(each["cut_at"]), "word"),
        TableColumn("EVENTS", lambda each: each["count"], "number"),
        TableColumn("TRIES", lambda each: each["made"], "number"),
        TableColumn("LAST ANSWER", describe_last_answer),
    )
    path = ("bus", "subscriptions", key, "deliveries")
    found = session.api.items(*path, limit=limit, status=status, since=since, namespace=namespace)
    session.out.show_list(found, columns, id="id", limit=limit)


@deliveries.verb("show")
@click.argument("id_", metavar="ID")
@click.option("--events", is_flag=True, help="Include its events, as long as they are kept.")
@options.namespace
def show_delivery(session: Session, id_: str, events: bool, namespace: str) -> None:
    """Show a delivery and its attempts."""
    found = session.api.get("bus", "deliveries", id_, events="true" if events else "", namespace=namespace)
    session.out.show(found, lambda: describe_sent(session.out, found), id="id")
