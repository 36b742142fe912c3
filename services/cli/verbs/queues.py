"""`carillon queues`."""

from services.cli.output.tables import TableColumn
from services.cli.session import Session
from services.cli.verb import noun

queues = noun("queues")

QUEUE_COLUMNS = (
    TableColumn("QUEUE", lambda queue: queue["name"]),
    TableColumn("READY", lambda queue: queue["ready"], "number"),
    TableColumn("UNACKED", lambda queue: queue["unacked"], "number"),
    TableColumn("CONSUMERS", lambda queue: queue["consumers"], "number"),
    TableColumn("IN/s", lambda queue: queue["publishRate"], "number"),
    TableColumn("OUT/s", lambda queue: queue["deliverRate"], "number"),
)


@queues.verb("list")
def list_queues(session: Session) -> None:
    """List the queues with their waiting and taken messages."""
    session.out.show_list(session.api.get("queues"), QUEUE_COLUMNS, id="name", limit=0)
