"""`carillon replays`."""

from datetime import datetime
from typing import Any

import click

from services.cli import options
from services.cli.options import Past
from services.cli.output.tables import TableColumn, count_things, state_column
from services.cli.session import Session
from services.cli.verb import noun

replays = noun("replays")

_key = click.argument("key", metavar="KEY")
_PATH = ("bus", "subscriptions")


@replays.verb(
    "create",
    changes=True,
    examples=(
        "replays create invoices --from 2h",
        "replays create invoices --from 2025-12-24 --to 2025-12-25 --topic orders",
    ),
)
@_key
@click.option(
    "--from", "since", type=Past(), required=True, help="Time of the first event: 2h (ago), yesterday, 2025-12-24."
)
@click.option("--to", "until", type=Past(), help="Time after the last event (default: now).")
@click.option("--topic", "topics", multiple=True, metavar="NAME",
              help="Only this topic; may be given several times (default: all of the subscription).")  # fmt: skip
@options.namespace
def create(
    session: Session, key: str, since: datetime, until: datetime | None, topics: tuple[str, ...], namespace: str
) -> None:
    """Deliver past events once more, as far back as the log goes."""
    body: dict[str, Any] = {"from": since.isoformat()}
    body |= {"to": until.isoformat()} if until else {}
    body |= {"topics": list(topics)} if topics else {}
    made = session.api.post(*_PATH, key, "replays", body=body, once=True, namespace=namespace)
    cut = " The log does not reach back to the beginning." if made["begins_late"] else ""
    session.out.confirm(
        made, f"Replay {made['number']} of {key} reads {count_things(made['total'], 'record')}.{cut}", id="number"
    )


@replays.verb("list")
@_key
@options.namespace
@options.limit
def list_replays(session: Session, key: str, namespace: str, limit: int | None) -> None:
    """List the replays of a subscription and their progress."""
    columns = (
        TableColumn("NUMBER", lambda each: each["number"], "number"),
        state_column("STATE", lambda each: each["state"]),
        TableColumn("READ", lambda each: f"{each['read']:,} of {each['total']:,}", "number"),
        TableColumn("EVENTS", lambda each: f"{each['events']:,}", "number"),
        TableColumn("LOST", lambda each: f"{each['lost']:,}", "number"),
        TableColumn("FROM", lambda each: session.out.when(each["from"]), "word"),
        TableColumn("TO", lambda each: session.out.when(each["from"] and (each["to"] or each["created_at"])), "word"),
        TableColumn("CREATED", lambda each: session.out.when(each["created_at"]), "word"),
        TableColumn("REASON", lambda each: each["reason"]),
    )
    found = session.api.items(*_PATH, key, "replays", limit=limit, namespace=namespace)
    session.out.show_list(found, columns, id="number", limit=limit)


@replays.verb("cancel", destroys=True)
@_key
@options.namespace
def cancel(session: Session, key: str, namespace: str) -> None:
    """Cancel the replays of a subscription. Events that they brought stay in its queue."""
    session.ask(f"This cancels what is being delivered again to {key}.")
    session.api.delete(*_PATH, key, "replays", namespace=namespace)
    session.out.confirm({"key": key}, f"Cancelled the replays of {key}.", id="key")
