"""`carillon queues`."""

import click

from services.cli import complete, options
from services.cli.output.tables import Json, TableColumn
from services.cli.session import NAMED_FROM_THINGS, Session
from services.cli.verb import noun

command = noun("queues")

COLUMNS = (
    TableColumn("QUEUE", lambda queue: queue["name"]),
    TableColumn("READY", lambda queue: queue["ready"], "number"),
    TableColumn("UNACKED", lambda queue: queue["unacked"], "number"),
    TableColumn("CONSUMERS", lambda queue: queue["consumers"], "number"),
    TableColumn("DEAD", lambda queue: queue["dead"], "number", lambda queue: "red" if queue["dead"] else ""),
    TableColumn("IN/s", lambda queue: queue["publishRate"], "number"),
    TableColumn("OUT/s", lambda queue: queue["deliverRate"], "number"),
)
DEAD_COLUMNS = (
    TableColumn("BYTES", lambda message: message["bytes"], "number"),
    TableColumn("MESSAGE", lambda message: message["text"]),
)
_queue = click.argument("queue", metavar="QUEUE", shell_complete=complete.queues)


@command.verb("list")
def list_queues(session: Session) -> None:
    """List the queues with their waiting, taken and dead messages."""
    session.out.show_list(session.api.get("queues"), COLUMNS, id="name", limit=0)


@command.verb("peek")
@_queue
@options.limit
def peek(session: Session, queue: str, limit: int | None) -> None:
    """Show the dead messages of a queue, and leave them there."""
    found: list[Json] = session.api.get("queues", queue, "dead", limit=limit)["messages"]
    session.out.show_list(found, DEAD_COLUMNS, id="text", limit=0)


@command.verb("return", changes=True)
@_queue
def return_dead(session: Session, queue: str) -> None:
    """Return the dead messages of a queue to it, to be tried again."""
    answer = session.api.post("queues", queue, "dead", "return")
    session.out.confirm({"name": queue, **answer}, f"Gave the dead messages of {queue} back.", id="name")


@command.verb("purge", destroys=True)
@_queue
def purge(session: Session, queue: str) -> None:
    """Delete the dead messages of a queue."""
    dead = next((each["dead"] for each in session.api.get("queues") if each["name"] == queue), 0)
    session.ask(
        f"This deletes {dead:,} dead messages of {queue}; there is no undo.",
        type_name=queue if dead > NAMED_FROM_THINGS else "",
    )
    answer = session.api.post("queues", queue, "dead", "purge")
    session.out.confirm({"name": queue, **answer}, f"Deleted the dead messages of {queue}.", id="name")
