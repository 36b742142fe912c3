"""`carillon messages`."""

import click

from services.cli import complete, options
from services.cli.message_shape import message_columns, message_fields
from services.cli.names import find_app
from services.cli.session import Session
from services.cli.verb import noun

command = noun("messages")


@command.verb("find", of_app=True)
@click.argument("recipient", required=False, default="")
@click.option(
    "--credential",
    default="",
    metavar="NAME",
    shell_complete=complete.credentials,
    help="With --provider-id: the provider account, by name or id.",
)
@click.option("--provider-id", default="", metavar="ID", help="With --credential: what the provider calls the message.")
@options.limit
def find(session: Session, recipient: str, credential: str, provider_id: str, limit: int | None) -> None:
    """List the messages to a RECIPIENT, the newest first, or find one by what its provider calls it."""
    if bool(recipient) == bool(credential or provider_id):
        raise click.UsageError("either a RECIPIENT, or --credential and --provider-id")
    query = {"recipient": recipient, "credential": credential, "providerId": provider_id}
    found = session.api.items("apps", find_app(session), "messages", limit=limit, **query)
    session.out.show_list(found, message_columns(session.out), id="id", limit=limit)


@command.verb("redact", of_app=True, destroys=True)
@click.argument("recipient")
def redact(session: Session, recipient: str) -> None:
    """Have the messages to a RECIPIENT forget it. They count as before. What is still to be sent is sent: to stop that,
    add a suppression first."""
    app_id, total = find_app(session), 0
    session.ask(f"The messages to {recipient} will not show whom they were to; there is no undo.")
    while (answer := session.api.redact(app_id, recipient))["more"]:
        total += answer["redacted"]
    total += answer["redacted"]
    session.out.confirm({"redacted": total}, f"{total} messages have forgotten their recipient.", id="redacted")


@command.verb("show", of_app=True)
@click.argument("message_id", metavar="MESSAGE")
def show(session: Session, message_id: str) -> None:
    """Show a message and its last attempts, by its id."""
    message = session.api.get("apps", find_app(session), "messages", message_id)
    session.out.show(message, lambda: message_fields(session.out, message), id="id")
