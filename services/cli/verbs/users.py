"""`carillon users`."""

from typing import Any

import click

from services.cli import complete, options
from services.cli.access import access_body, access_options, may
from services.cli.names import find_listed
from services.cli.output.tables import Json, TableColumn
from services.cli.session import Session
from services.cli.verb import noun

users = noun("users")

_user = click.argument("user_name", metavar="USER", shell_complete=complete.users)


@users.verb("list")
@options.limit
def list_users(session: Session, limit: int | None) -> None:
    """List the users, oldest first."""
    columns = (
        TableColumn("ID", lambda user: user["id"], "id"),
        TableColumn("E-MAIL", lambda user: user["email"]),
        TableColumn("MAY", may),
        TableColumn("MADE BY", lambda user: user["createdBy"]),
    )
    session.out.show_list(session.api.items("users", limit=limit), columns, id="id", limit=limit)


@users.verb("show")
@_user
def show_user(session: Session, user_name: str) -> None:
    """Show a user, by e-mail address or id, and their rights."""
    user = session.api.get("users", _find_user(session, user_name)["id"])
    fields = [
        ("id", user["id"]),
        ("e-mail", user["email"]),
        ("may", may(user)),
        ("made", f"{session.out.when(user['createdAt'])} by {user['createdBy']}"),
    ]
    session.out.show(user, lambda: fields, id="id")


@users.verb(
    "create",
    changes=True,
    examples=(
        "users create ana@example.com --role app/shop=operator",
        "users create bob@example.com --admin",
    ),
)
@click.argument("email", metavar="E-MAIL")
@access_options
def create_user(session: Session, email: str, **access: Any) -> None:
    """Create a user."""
    user = session.api.post("users", body={"email": email, **access_body(session, **access)})
    session.out.confirm(user, f"Created user {user['email']}, {user['id']}.", id="id")


@users.verb("edit", changes=True)
@_user
@access_options
def edit_user(session: Session, user_name: str, **access: Any) -> None:
    """Replace the rights of a user, by e-mail address or id."""
    found = _find_user(session, user_name)
    user = session.api.put("users", found["id"], body={"email": found["email"], **access_body(session, **access)})
    session.out.confirm(user, f"Changed user {user['email']}. Rights: {may(user) or 'none'}.", id="id")


@users.verb("delete", destroys=True)
@_user
def delete_user(session: Session, user_name: str) -> None:
    """Delete a user, by e-mail address or id, and pause their schedules."""
    user = _find_user(session, user_name)
    session.ask(f"This deletes user {user['email']} and pauses all that they have scheduled.")
    session.api.delete("users", user["id"])
    session.out.confirm(user, f"Deleted user {user['email']}.", id="id")


def _find_user(session: Session, typed: str) -> Json:
    return find_listed(session, typed, "users", what="user", names=("id", "email"))
