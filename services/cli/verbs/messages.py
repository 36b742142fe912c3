"""`carillon messages` and `carillon suppressions`."""

import re
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from itertools import chain
from typing import Any

import click

from services.cli import complete, options
from services.cli.exits import Exit, Failure
from services.cli.job_screens import message_columns, message_fields
from services.cli.names import find_app
from services.cli.nouns import Noun
from services.cli.options import Instant, JsonText
from services.cli.output import Json, TableColumn, count_things
from services.cli.session import Session

messages = Noun("messages")
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
        from shared.messages.rules.recipients import explain_search

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
    """How one item ended; a refusal is told by its place among all, because a recipient is personal."""
    if result["status"] < HTTPStatus.BAD_REQUEST:
        return "accepted"
    error = result["error"]
    where = f"{error['field']}: " if error["field"] else ""
    session.out.tell(f"{start + result['index'] + 1}: {where}{error['reason']}")
    return "refused"


suppressions = Noun("suppressions")
_ADDED_AT_ONCE = 5_000
_ID = re.compile(r"[0-9a-f]{32}")
_CHANNELS = click.Choice(["mail", "sms", "push", "other"])
_CAUSES = click.Choice(["bounce", "complaint", "unsubscribe", "hand"])
_FIELD_OF = {"channel": "channel", "list_name": "list", "cause": "cause", "default_region": "defaultRegion"}
_meant_options = options.join(
    click.option(
        "--list", "list_name", metavar="LIST", help="Block only messages of this list (default: all messages)."
    ),
    click.option("--cause", type=_CAUSES, help="Cause (default: hand). Transactional messages pass an unsubscribe."),
    click.option("--default-region", metavar="XX", help="Country of phone numbers without a country code, such as SG."),
)


@suppressions.verb("list", of_app=True)
@click.option("--address", default="", help="Only this address.")
@options.limit
def list_suppressions(session: Session, address: str, limit: int | None) -> None:
    """List the blocked addresses of an app."""
    columns = (
        TableColumn("ID", lambda each: each["id"], "id"),
        TableColumn("ADDRESS", lambda each: each["address"] or "(by a link)"),
        TableColumn("CHANNEL", lambda each: each["channel"], "word"),
        TableColumn("LIST", lambda each: each["list"] or "(all)"),
        TableColumn("CAUSE", lambda row: row["cause"] + ", unsubscribe" * _is_both(row), "word"),
        TableColumn("SINCE", lambda each: session.out.when(each["at"]), "word"),
    )
    found = session.api.items("apps", find_app(session), "suppressions", limit=limit, address=address)
    session.out.show_list(found, columns, id="id", limit=limit)


@suppressions.verb(
    "add",
    of_app=True,
    changes=True,
    examples=(
        "suppressions add eve@example.com --app shop --channel mail",
        "suppressions add eve@example.com --app shop --channel mail --list news --cause unsubscribe",
    ),
)
@click.argument("address")
@click.option("--channel", type=_CHANNELS, required=True, help="Kind of address.")
@_meant_options
def add(session: Session, address: str, **meant: Any) -> None:
    """Block an address. No effect if it is blocked already."""
    body = {"address": address} | _fields(**meant)
    stored = session.api.post("apps", find_app(session), "suppressions", body=body)
    session.out.confirm(
        stored, f"Blocked {stored['address']}: it gets no more messages of {_list_of(stored)}.", id="id"
    )


@suppressions.verb(
    "import",
    of_app=True,
    changes=True,
    examples=(
        "suppressions import --app shop --channel mail addresses.txt",
        "suppressions import --app shop suppressions.json",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option("--channel", type=_CHANNELS, help="Kind of address, if each line of the files is one.")
@_meant_options
def import_suppressions(session: Session, files: Sequence[str], **meant: Any) -> None:
    """Block all addresses of files (`-`: stdin). With --channel, a file has an address a line. Without, it is JSON as
    the API takes it, an array or one a line. It may be repeated."""
    app_id, given = find_app(session), _fields(**meant)
    bodies = [body for file in files for body in _read_bodies(file, given)]
    told = {"created": 0, "there": 0, "refused": 0}
    for start in range(0, len(bodies), _ADDED_AT_ONCE):
        chunk = bodies[start : start + _ADDED_AT_ONCE]
        for result in session.api.post("apps", app_id, "suppressions", "bulk", body=chunk):
            told[_outcome_of_suppression(session, start, result)] += 1
    session.out.confirm(told, f"Newly blocked: {told['created']:,}. Blocked before: {told['there']:,}.", id="")
    if told["refused"]:
        raise Failure(Exit.REFUSED, f"Refused: {told['refused']:,}. The other addresses are blocked.")


@suppressions.verb("remove", of_app=True, destroys=True)
@click.argument("who", metavar="ADDRESS|ID")
@click.option("--channel", type=_CHANNELS, help="Only on this channel.")
@click.option("--list", "list_name", metavar="LIST", help="Only of this list; '' is the block of all messages.")
def remove(session: Session, who: str, channel: str | None, list_name: str | None) -> None:
    """Unblock an address. A recipient who has also unsubscribed stays unsubscribed."""
    app_id = find_app(session)
    found = {"id": who} if _ID.fullmatch(who) else _find(session, app_id, who, channel, list_name)
    session.ask(f"This removes block {found['id']}: its address may get messages again.")
    session.api.delete("apps", app_id, "suppressions", found["id"])
    stays = " They have unsubscribed too: that stays." if _is_both(found) else ""
    session.out.confirm(found, f"Removed block {found['id']}.{stays}", id="id")


def _find(session: Session, app_id: str, address: str, channel: str | None, list_name: str | None) -> Json:
    found = [
        each
        for each in session.api.items("apps", app_id, "suppressions", address=address)
        if channel in (None, each["channel"]) and list_name in (None, each["list"])
    ]
    if not found:
        see = "`carillon suppressions list` shows them."
        raise Failure(Exit.NOT_FOUND, f"{address!r} is not blocked.", see)
    if len(found) > 1:
        shown = ", ".join(f"{each['id']} ({each['channel']}, {_list_of(each)})" for each in found)
        raise click.UsageError(
            f"{address!r} has {len(found)} blocks: {shown}; name one by its id, or by --channel and --list"
        )
    return found[0]


def _read_bodies(file: str, given: dict[str, Any]) -> list[Any]:
    if "channel" not in given:
        try:
            documents = options.read_documents(file)
        except click.UsageError as error:
            hint = ". If each line is an address, give --channel." if "JSON" in error.message else ""
            raise click.UsageError(f"{error.message}{hint}") from None
        return [each | given if isinstance(each, dict) else each for each in documents]
    return [{"address": line} | given for line in options.read_lines(file)]


def _fields(**meant: Any) -> dict[str, Any]:
    return {_FIELD_OF[name]: value for name, value in meant.items() if value is not None}


def _outcome_of_suppression(session: Session, start: int, result: Json) -> str:
    """How one item ended; a refusal is told by its place among all, because an address is personal."""
    if result["status"] < HTTPStatus.BAD_REQUEST:
        return "created" if result["status"] == HTTPStatus.CREATED else "there"
    session.out.tell(f"{start + result['index'] + 1}: {result['error']['field']}: {result['error']['reason']}")
    return "refused"


def _is_both(suppression: Json) -> bool:
    """Whether it is a bar, and the recipient has unsubscribed too."""
    return bool(suppression.get("unsubscribedAt")) and suppression["cause"] != "unsubscribe"


def _list_of(suppression: Json) -> str:
    return f"the list {suppression['list']}" if suppression["list"] else "any list"
