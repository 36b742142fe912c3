"""`carillon processes`."""

from collections.abc import Sequence

from services.cli.output.out import Output
from services.cli.output.tables import TableColumn, state_column
from services.cli.session import Session
from services.cli.verb import noun

processes = noun("processes")


@processes.verb("list")
def list_processes(session: Session) -> None:
    """List the processes and the work that they have in hand."""
    session.out.show_list(session.api.get("processes"), process_columns(session.out), id="id", limit=0)


def process_columns(out: Output) -> Sequence[TableColumn]:
    """The columns of a list of processes."""
    return (
        TableColumn("ID", lambda each: each["id"], "id"),
        TableColumn("ROLES", lambda each: ",".join(each["roles"])),
        state_column("STATE", lambda each: each["state"]),
        TableColumn("HOST", lambda each: each["host"]),
        TableColumn("VERSION", lambda each: each["version"], "word"),
        TableColumn("SINCE", lambda each: out.when(each["startedAt"]), "word"),
        TableColumn("SEEN", lambda each: out.when(each["seenAt"]), "word"),
        TableColumn("IN HAND", lambda each: each["inHandCount"], "number"),
        TableColumn("MB", lambda each: (each["memoryBytes"] or 0) // 2**20, "number"),
        TableColumn("FAILING", lambda each: ", ".join(each["failingChecks"])),
    )
