"""`carillon audit`."""

import click

from services.cli import options
from services.cli.names import find_app
from services.cli.output.tables import TableColumn, state_column
from services.cli.session import Session
from services.cli.verb import noun

audit = noun("audit")


@audit.verb("list", of_app=True)
@click.option("--act", default="", help="Only this act, such as job.stop.")
@click.option("--on", "thing", default="", metavar="ID", help="Only acts on the thing with this id or key.")
@click.option("--by", default="", metavar="NAMESPACE", help="Only acts of this caller, such as user:ana@example.com.")
@options.limit
def list_records(session: Session, act: str, thing: str, by: str, limit: int | None) -> None:
    """List acts, newest first; with --app, those on the app."""
    path = ("apps", find_app(session), "audit") if session.app else ("audit",)
    columns = (
        TableColumn("AT", lambda each: session.out.when(each["at"]), "word"),
        TableColumn("WHO", lambda each: each["who"]["name"]),
        TableColumn("ACT", lambda each: each["act"], "word"),
        TableColumn("ON", lambda each: each["on"]["id"], "id"),
        TableColumn("NAME", lambda each: each["on"].get("name", "")),
        state_column("OUTCOME", lambda each: each["outcome"]),
        TableColumn("REASON", lambda each: each["reason"]),
        TableColumn("VIA", lambda each: each["via"]),
    )
    found = session.api.items(*path, limit=limit, act=act, on=thing, by=by)
    session.out.show_list(found, columns, id="id", limit=limit)
