"""`carillon users`."""

from typing import Any

import click

from services.cli import complete, options
from services.cli.access import access_body, access_options, may
from services.cli.names import find_listed
from services.cli.output.tables import TableColumn
from services.cli.session import Session
from services.cli.verb import noun

command = noun("users")


@command.verb("list")
@options.limit
def list_users(session: Session, limit: int | None) -> None:
    """List the users, the oldest first."""
    columns = (
        TableColumn("ID", lambda user: user["id"], "id"),
        TableColumn("E-MAIL", lambda user: user["email"]),
        TableColumn("MAY", may),
        TableColumn("MADE BY", lambda user: user["createdBy"]),
    )
    session.out.show_list(session.api.items("users", limit=limit), columns, id="id", limit=limit)


@command.verb("create", changes=True)
@click.argument("email", metavar="E-MAIL")
@access_options
def create(session: Session, email: str, **access: Any) -> None:
    """Make a user."""
    user = session.api.post("users", body={"email": email, **access_body(session, **access)})
    session.out.confirm(user, f"Made user {user['email']}, {user['id']}.", id="id")


@command.verb("delete", destroys=True)
@click.argument("user_name", metavar="USER", shell_complete=complete.users)
def delete(session: Session, user_name: str) -> None:
    """Delete a user, by e-mail address or id, and pause all that they have scheduled."""
    user = find_listed(session, user_name, "users", what="user", names=("id", "email"))
    session.ask(f"This deletes user {user['email']} and pauses all that they have scheduled.")
    session.api.delete("users", user["id"])
    session.out.confirm(user, f"Deleted user {user['email']}.", id="id")
