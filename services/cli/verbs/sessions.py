"""`carillon sessions`."""

import click

from services.cli.output.tables import TableColumn
from services.cli.session import Session
from services.cli.verb import noun

sessions = noun("sessions")


@sessions.verb("list")
def list_sessions(session: Session) -> None:
    """List the browsers signed in with your token, newest first."""
    columns = (
        TableColumn("ID", lambda browser: browser["id"], "id"),
        TableColumn("BEGAN", lambda browser: session.out.when(browser["beganAt"]), "word"),
        TableColumn("SEEN", lambda browser: session.out.when(browser["seenAt"]), "word"),
        TableColumn("ADDRESS", lambda browser: browser["address"]),
        TableColumn("BROWSER", lambda browser: browser["agent"]),
    )
    session.out.show_list(session.api.get("sessions"), columns, id="id", limit=0)


@sessions.verb("end", changes=True)
@click.argument("session_id", metavar="SESSION")
def end_session(session: Session, session_id: str) -> None:
    """Sign a browser out of the dashboard."""
    session.api.delete("sessions", session_id)
    session.out.confirm({"id": session_id}, "Signed that browser out.", id="id")
