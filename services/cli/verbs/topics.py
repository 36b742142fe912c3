"""`carillon topics`."""

from typing import Any

import click

from services.cli import options
from services.cli.output.tables import Json, TableColumn
from services.cli.session import Session
from services.cli.verb import noun

topics = noun("topics")

_topic = click.argument("topic")


@topics.verb("list")
@options.limit
def list_topics(session: Session, limit: int | None) -> None:
    """List the topics of the bus by name."""
    columns = (
        TableColumn("NAME", lambda topic: topic["name"], "id"),
        TableColumn("OWNER", lambda topic: topic["owner"] or "(nobody)"),
        TableColumn("EVENTS", lambda topic: topic["events"], "number"),
        TableColumn("DESCRIPTION", lambda topic: topic["description"]),
        TableColumn("MADE", lambda topic: session.out.when(topic["created_at"]), "word"),
    )
    session.out.show_list(session.api.items("bus", "topics", limit=limit), columns, id="name", limit=limit)


@topics.verb("show")
@_topic
def show(session: Session, topic: str) -> None:
    """Show a topic."""
    found = session.api.get("bus", "topics", topic)
    fields = [
        ("name", found["name"]),
        ("owner", found["owner"] or "(nobody)"),
        ("subscribers", "its owner only" if found["private"] else "every namespace"),
        ("description", found["description"]),
        ("events", found["events"]),
        ("bytes", found["bytes"]),
        ("made", session.out.when(found["created_at"])),
    ]
    session.out.show(found, lambda: fields, id="name")


@topics.verb(
    "put",
    changes=True,
    examples=(
        "topics put orders --description 'Changes of orders'",
        "topics put orders --private",
    ),
)
@_topic
@click.option("--description", help="Description of its events.")
@click.option("--owner", metavar="NAMESPACE", help="Owner: `token:<id>` or `user:<e-mail address>` (admins only).")
@click.option("--private/--open", default=None, help="Let only its owner subscribe; `--open`: every namespace.")
@click.option("--free", is_flag=True, help="Let the next publisher own it (admins only).")
def put(
    session: Session, topic: str, description: str | None, owner: str | None, private: bool | None, free: bool
) -> None:
    """Create or describe a topic. A topic without an owner becomes yours."""
    if owner is not None and free:
        raise click.UsageError("use --owner or --free, not both")
    body: dict[str, Any] = {} if description is None else {"description": description}
    body |= {} if private is None else {"private": private}
    body |= {"owner": owner} if owner is not None else {"owner": None} if free else {}
    stored = session.api.put("bus", "topics", topic, body=body)
    session.out.confirm(stored, f"Topic {stored['name']} is {_owner_of(stored)}.", id="name")


@topics.verb("delete", destroys=True)
@_topic
def delete(session: Session, topic: str) -> None:
    """Delete a topic from all subscriptions. Only admins delete one that others subscribe to."""
    found = session.api.get("bus", "topics", topic)
    session.ask(f"This deletes the topic {found['name']} and takes it from every subscription; there is no undo.")
    session.api.delete("bus", "topics", topic)
    session.out.confirm(found, f"Deleted topic {found['name']}.", id="name")


@topics.verb("pressure")
def pressure(session: Session) -> None:
    """Show the backlog of the bus, as autoscalers read it."""
    told: Json = session.api.get("bus", "pressure")
    fields = [
        ("batches that are due", told["due"]),
        ("events that wait", told["queued"]),
        ("the oldest for", f"{told['oldest_seconds']:.1f} s"),
        ("records in no queue yet", told["log_lag"]),
    ]
    session.out.show(told, lambda: fields, id="due")


def _owner_of(topic: Json) -> str:
    return f"owned by {topic['owner']}" if topic["owner"] else "nobody's"
