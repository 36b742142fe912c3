"""The options for apps and roles of users and tokens."""

from collections.abc import Sequence
from typing import Any

import click

from services.cli import complete
from services.cli.names import find_app
from services.cli.options import join, pairs
from services.cli.output.tables import Json
from services.cli.session import Session

access_options = join(
    click.option("--admin", "is_admin", is_flag=True, help="Make an admin, who may do everything."),
    click.option("--allow", "apps", multiple=True, metavar="APP", shell_complete=complete.apps,
                 help="Make an admin of this app."),
    pairs("--role", "roles", metavar="OF=ROLE",
          help="Give a role: viewer, operator or admin of '*', app/APP (id or name) or namespace/NAMESPACE."),
)  # fmt: skip


def access_body(
    session: Session, *, is_admin: bool, apps: Sequence[str], roles: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """The part of a request's body with the rights."""
    allowed = [find_app(session, app) for app in apps]
    given = {_scope(session, scope): role for scope, role in roles}
    return {"isAdmin": is_admin, "allowedApps": allowed, "roles": given}


def _scope(session: Session, typed: str) -> str:
    kind, _, app = typed.partition("/")
    return f"app/{find_app(session, app)}" if kind == "app" and app else typed


def may(holder: Json) -> str:
    """The rights of a user or token, in a line."""
    if holder["isAdmin"]:
        return "everything"
    apps = [f"app/{app}: admin" for app in holder["allowedApps"] or []]
    return ", ".join([*apps, *(f"{of}: {role}" for of, role in holder["roles"].items())])
