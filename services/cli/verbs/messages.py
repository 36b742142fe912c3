"""`carillon messages`."""

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from itertools import chain
from typing import Any

import click

from services.cli import complete, options
from services.cli.exits import Exit, Failure
from services.cli.message_shape import message_columns, message_fields
from services.cli.names import find_app
from services.cli.options import Instant, JsonText
from services.cli.output.tables import Json, count_things
from services.cli.session import Session
from services.cli.verb import noun

messages = noun("messages")

_SENT_AT_ONCE = 500
_RUNNING = "x-carillon-running-jobs"


@messages.verb(
    "send",
    of_app=True,
    changes=True,
    examples=(
        "messages send ana@example.com --app shop --credential smtp --template receipt --set total=12.50",
        "messages send +4915112345678 --app shop --credential twilio --template code --set code=4711",
    ),
)
@click.argument("recipient")
@click.option(
    "--credential",
    required=True,
    metavar="NAME",
    shell_complete=complete.credentials,
    help="Provider account, by name or id.",
)
@click.option("--template", metavar="NAME", shell_complete=complete.templates, help="Template of the message.")
@click.option("--body", type=JsonText(), metavar="JSON|@FILE", help="Content of the message, in place of a template.")
@options.pairs("--set", "parameters", help="Fill a tag: name=Ana.")
@click.option("--locale", help="Locale of the template (default: en).")
@click.option("--default-region", metavar="XX", help="Country of a phone number without a country code, such as SG.")
@click.option("--at", "send_at", type=Instant(), help="Time to send it (default: now).")
@click.option("--expires", "expires_at", type=Instant(), help="Time after which it is not sent any more.")
@click.option("--list", "list_name", metavar="LIST", help="List that the recipient can unsubscribe from.")
@click.option(
    "--transactional/--marketing", default=None, help="Send it to an unsubscribed recipient too (default), or not."
)
def send(
    session: Session,
    recipient: str,
    parameters: Sequence[tuple[str, str]],
    send_at: datetime | None,
    expires_at: datetime | None,
    list_name: str | None,
    default_region: str | None,
    **given: Any,
) -> None:
    """Send a message to one recipient, now or at --at."""
    wanted = given | {
        "to": recipient,
        "parameters": dict(parameters) or None,
        "sendAt": send_at and send_at.isoformat(),
        "expiresAt": expires_at and expires_at.isoformat(),
        "list": list_name,
        "defaultRegion": default_region,
    }
    body = {name: value for name, value in wanted.items() if value is not None}
    message = session.api.post("apps", find_app(session), "messages", body=body)
    session.out.confirm(message, f"Accepted message {message['id']}.", id="id")


@messages.verb(
    "import",
    of_app=True,
    changes=True,
    examples=(
        "messages import --app shop messages.ndjson",
        "messages import --app shop first.ndjson second.json",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
def import_messages(session: Session, files: Sequence[str]) -> None:
    """Send all messages of files (`-`: stdin). A file is a JSON array, or has an object a line."""
    app_id, told = find_app(session), {"accepted": 0, "refused": 0}
    bodies = [body for file in files for body in options.read_documents(file)]
    for start in range(0, len(bodies), _SENT_AT_ONCE):
        chunk = bodies[start : start + _SENT_AT_ONCE]
        for result in session.api.post("apps", app_id, "messages", "bulk", body=chunk):
            told[_outcome_of_message(session, start, result)] += 1
    session.out.confirm(told, f"Accepted {count_things(told['accepted'], 'message')}.", id="")
    if told["refused"]:
        raise Failure(Exit.REFUSED, f"Refused: {count_things(told['refused'], 'message')}. The others are sent.")


@messages.verb("cancel", of_app=True, destroys=True)
@click.argument("message_id", metavar="MESSAGE")
def cancel(session: Session, message_id: str) -> None:
    """Cancel a message that has not been sent, by its id."""
    app_id = find_app(session)
    session.ask(f"This cancels message {message_id}: it is never sent.")
    session.api.delete("apps", app_id, "messages", message_id)
    session.out.confirm({"id": message_id}, f"Cancelled message {message_id}.", id="id")


@messages.verb("find", of_app=True)
@click.argument("recipient", required=False, default="")
@click.option(
    "--credential",
    default="",
    metavar="NAME",
    shell_complete=complete.credentials,
    help="Provider account of --provider-id, by name or id.",
)
@click.option("--provider-id", default="", metavar="ID", help="Id that the provider of --credential gave the message.")
@options.limit
def find(session: Session, recipient: str, credential: str, provider_id: str, limit: int | None) -> None:
    """List the messages to a recipient, newest first. Or find one by its provider's id."""
    if bool(recipient) == bool(credential or provider_id):
        raise click.UsageError("give a RECIPIENT, or both --credential and --provider-id")
    query = {"recipient": recipient, "credential": credential, "providerId": provider_id}
    app_id = find_app(session)
    found = session.api.items("apps", app_id, "messages", limit=limit, **query)
    first = next(found, None)
    if first is not None or not recipient:
        items = chain(() if first is None else (first,), found)
        session.out.show_list(items, message_columns(session.out, of_app=True), id="id", limit=limit)
    if recipient and (first is None or session.out.is_for_people):
        from shared.domain.messages.recipients import explain_search

        begun = int(session.api.header(_RUNNING, "apps", app_id, "messages", recipient=recipient, limit=1) or 0)
        if hint := explain_search(first is not None, begun):
            session.out.tell(hint)


@messages.verb("redact", of_app=True, destroys=True)
@click.argument("recipient")
def redact(session: Session, recipient: str) -> None:
    """Forget a recipient in all messages to it. They count as before. Waiting messages are still sent: to stop that,
    add a suppression first."""
    app_id, total = find_app(session), 0
    session.ask(f"This removes the recipient {recipient} from all messages to it. There is no undo.")
    while (answer := session.api.redact(app_id, recipient))["more"]:
        total += answer["redacted"]
    total += answer["redacted"]
    session.out.confirm(
        {"redacted": total}, f"Removed the recipient from {count_things(total, 'message')}.", id="redacted"
    )


@messages.verb("show", of_app=True)
@click.argument("message_id", metavar="MESSAGE")
def show(session: Session, message_id: str) -> None:
    """Show a message and its last attempts, by its id."""
    message = session.api.get("apps", find_app(session), "messages", message_id)
    session.out.show(message, lambda: message_fields(session.out, message), id="id")


def _outcome_of_message(session: Session, start: int, result: Json) -> str:
    """How one item ended; a refusal is told by its place among all, for a recipient is nobody's business."""
    if result["status"] < HTTPStatus.BAD_REQUEST:
        return "accepted"
    error = result["error"]
    where = f"{error['field']}: " if error["field"] else ""
    session.out.tell(f"{start + result['index'] + 1}: {where}{error['reason']}")
    return "refused"
