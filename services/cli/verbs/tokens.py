"""`carillon tokens`."""

from datetime import datetime, timedelta
from typing import Any

import click

from services.cli import complete, options
from services.cli.access import access_body, access_options, may
from services.cli.names import find_listed
from services.cli.options import Instant, Span
from services.cli.output.tables import Json, TableColumn
from services.cli.session import Session
from services.cli.verb import noun

tokens = noun("tokens")

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
