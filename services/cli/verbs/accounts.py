"""`carillon apps`, `users`, `tokens`, `sessions`, `namespaces` and `signing-secrets`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from services.cli import complete, options
from services.cli.names import find_app, find_listed
from services.cli.nouns import Noun
from services.cli.options import Instant, Span, join, pairs
from services.cli.output import Fields, Json, TableColumn, group_digits
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
    allowed = [find_app(session, app) for app in apps]
    given = {_scope(session, scope): role for scope, role in roles}
    return {"isAdmin": is_admin, "allowedApps": allowed, "roles": given}


def _scope(session: Session, typed: str) -> str:
    kind, _, app = typed.partition("/")
    return f"app/{find_app(session, app)}" if kind == "app" and app else typed


def may(holder: Json) -> str:
    if holder["isAdmin"]:
        return "everything"
    apps = [f"app/{app}: admin" for app in holder["allowedApps"] or []]
    return ", ".join([*apps, *(f"{of}: {role}" for of, role in holder["roles"].items())])


apps = Noun("apps")
_COLUMNS = (
    TableColumn("ID", lambda app: app["id"], "id"),
    TableColumn("NAME", lambda app: app["name"]),
    TableColumn("BUNDLE ID", lambda app: app["bundleId"]),
    TableColumn("MADE BY", lambda app: app["createdBy"]),
)
_app = click.argument("app_name", metavar="APP", shell_complete=complete.apps)


@apps.verb("list")
@options.limit
def list_apps(session: Session, limit: int | None) -> None:
    """List the apps, oldest first."""
    session.out.show_list(session.api.items("apps", limit=limit), _COLUMNS, id="id", limit=limit)


@apps.verb("show")
@_app
def show_app(session: Session, app_name: str) -> None:
    """Show an app."""
    app = session.api.get("apps", find_app(session, app_name))
    session.out.show(app, lambda: _fields(session, app), id="id")


@apps.verb(
    "create",
    changes=True,
    examples=(
        "apps create shop com.example.shop",
        "apps create shop com.example.shop --reason 'the new shop'",
    ),
)
@click.argument("name")
@click.argument("bundle_id", metavar="BUNDLE_ID")
def create_app(session: Session, name: str, bundle_id: str) -> None:
    """Create an app. Its name becomes part of its push tables and topics."""
    made = session.api.post("apps", body={"name": name, "bundleId": bundle_id})
    session.out.confirm(made, f"Created app {made['name']}, {made['id']}.", id="id")


@apps.verb("edit", changes=True)
@_app
@click.option("--name", default="", help="New name (admins only).")
@click.option("--bundle-id", default="", help="New bundle id.")
def edit_app(session: Session, app_name: str, name: str, bundle_id: str) -> None:
    """Change an app's name or bundle id."""
    if not (name or bundle_id):
        raise click.UsageError("nothing to change: give --name or --bundle-id")
    app_id = find_app(session, app_name)
    app = session.api.get("apps", app_id)
    wanted = {"name": name or app["name"], "bundleId": bundle_id or app["bundleId"]}
    changed = session.api.put("apps", app_id, body=wanted)
    session.out.confirm(changed, f"Changed app {changed['name']}.", id="id")


@apps.verb("devices")
@_app
@click.argument("user")
def find_devices(session: Session, app_name: str, user: str) -> None:
    """List the devices of a user, by the id in push tables."""
    columns = (
        TableColumn("SERVICE", lambda device: device["service"]),
        TableColumn("SEQ ID", lambda device: str(device["seqId"]), "id"),
        TableColumn("LOCALE", lambda device: device["locale"]),
        TableColumn("ZONE", lambda device: device["tz"]),
        TableColumn("TOKEN", lambda device: device["token"]),
    )
    found = session.api.get("apps", find_app(session, app_name), "devices", user=user)
    session.out.show_list(found, columns, id="seqId", limit=0)


@apps.verb("delete", destroys=True)
@_app
def delete_app(session: Session, app_name: str) -> None:
    """Delete an app, its templates and its jobs. All jobs must have ended."""
    app = session.api.get("apps", find_app(session, app_name))
    session.ask(f"This deletes app {app['name']} with its templates and jobs; there is no undo.", type_name=app["name"])
    session.api.delete("apps", app["id"])
    session.out.confirm(app, f"Deleted app {app['name']}. Much data may take a while to go.", id="id")


def _fields(session: Session, app: Json) -> Fields:
    return [
        ("id", app["id"]),
        ("name", app["name"]),
        ("bundle id", app["bundleId"]),
        ("made by", app["createdBy"]),
        ("made", session.out.when(app["createdAt"])),
        ("changed", session.out.when(app["updatedAt"])),
    ]


users = Noun("users")
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


tokens = Noun("tokens")
_token = click.argument("token_name", metavar="TOKEN", shell_complete=complete.tokens)


@tokens.verb("list")
@options.limit
def list_tokens(session: Session, limit: int | None) -> None:
    """List the tokens, oldest first, without their secrets."""
    columns = (
        TableColumn("ID", lambda token: token["id"], "id"),
        TableColumn("NAME", lambda token: token["name"]),
        TableColumn("MAY", may),
        TableColumn("MADE", lambda token: session.out.when(token["createdAt"]), "word"),
        TableColumn("USED", lambda token: session.out.when(token.get("lastUsedAt")), "word"),
        TableColumn("ENDS", lambda token: session.out.when(token.get("expiresAt")), "word"),
    )
    session.out.show_list(session.api.items("tokens", limit=limit), columns, id="id", limit=limit)


@tokens.verb(
    "create",
    changes=True,
    examples=(
        "tokens create billing --role app/shop=operator",
        "tokens create reports --role '*=viewer' --expires 2030-12-24",
    ),
)
@click.argument("name")
@click.option(
    "--namespace",
    default="",
    metavar="NAMESPACE",
    help="Namespace that it owns (default: its own, `token:<its id>`).",
)
@click.option("--expires", type=Instant(), help="Time at which it ends (default: never).")
@click.option(
    "--messages-per-second",
    type=options.Number(0, min_open=True),
    metavar="RATE",
    help="Maximum single messages a second (default 10).",
)
@access_options
def create_token(
    session: Session,
    name: str,
    namespace: str,
    expires: datetime | None,
    messages_per_second: float | None,
    **access: Any,
) -> None:
    """Create a token and print its secret once."""
    body = {"name": name, **access_body(session, **access)}
    chosen = {
        "namespace": namespace,
        "expiresAt": expires and expires.isoformat(),
        "messagesPerSecond": messages_per_second,
    }
    body |= {field: value for field, value in chosen.items() if value}
    _show_secret(session, session.api.post("tokens", body=body, once=True))


@tokens.verb("rotate", changes=True)
@_token
@click.option(
    "--overlap",
    type=Span(),
    default="0s",
    show_default=True,
    help="Time for which the old secret still works; 0 after a leak.",
)
def rotate_token(session: Session, token_name: str, overlap: timedelta) -> None:
    """Create a new secret for a token and print it once. Its schedules stay."""
    body = {"overlapSeconds": int(overlap.total_seconds())}
    token_id = _find_token(session, token_name)["id"]
    _show_secret(session, session.api.post("tokens", token_id, "rotate", body=body, once=True))


@tokens.verb("revoke", destroys=True)
@_token
def revoke_token(session: Session, token_name: str) -> None:
    """Revoke a token, by name or id, and pause its schedules."""
    token = _find_token(session, token_name)
    session.ask(f"This revokes token {token['name']} and pauses all that it has scheduled; there is no undo.")
    session.api.delete("tokens", token["id"])
    session.out.confirm(token, f"Revoked token {token['name']}.", id="id")


def _find_token(session: Session, typed: str) -> Json:
    return find_listed(session, typed, "tokens", what="token", names=("id", "name"))


def _show_secret(session: Session, token: Json) -> None:
    """The secret alone on stdout, so that it can be piped to where it is kept."""
    if not session.out.json:
        session.out.tell(f"Token {token['name']}, {token['id']}. Its secret is not shown again:")
    session.out.confirm(token, token["token"], id="id")


sessions = Noun("sessions")


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


namespaces = Noun("namespaces")
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


signing_secrets = Noun("signing-secrets")


@signing_secrets.verb(
    "create",
    changes=True,
    examples=(
        "signing-secrets create",
        "signing-secrets create --namespace user:ana@example.com",
    ),
)
@options.namespace
def create_signing_secret(session: Session, namespace: str) -> None:
    """Create a signing secret for a namespace and print it once. The old one signs beside it for a day."""
    issued = session.api.post("signing-secrets", once=True, namespace=namespace)
    if not session.out.json:
        until = session.out.when(issued["alone_from"])
        session.out.tell(f"Secret {issued['version']} of {issued['namespace']}; those before it sign until {until}.")
    session.out.confirm(issued, issued["secret"], id="secret")
