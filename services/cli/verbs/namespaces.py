"""`carillon namespaces`."""

from services.cli import options
from services.cli.output.tables import TableColumn, group_digits
from services.cli.session import Session
from services.cli.verb import noun

namespaces = noun("namespaces")

COUNTED = 1_000
NAMESPACE_COLUMNS = (
    TableColumn("NAMESPACE", lambda each: each["namespace"], "id"),
    TableColumn("TOKENS", lambda each: _count_up_to(each["tokens"]), "number"),
    TableColumn("SCHEDULES", lambda each: _count_up_to(each["schedules"]), "number"),
)


@namespaces.verb("list")
@options.limit
def list_namespaces(session: Session, limit: int | None) -> None:
    """List the namespaces over which you have a role, by name."""
    session.out.show_list(session.api.items("namespaces", limit=limit), NAMESPACE_COLUMNS, id="namespace", limit=limit)


def _count_up_to(count: int) -> str:
    return group_digits(count) if count <= COUNTED else f"{COUNTED:,}+"
