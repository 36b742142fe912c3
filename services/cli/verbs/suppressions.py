"""`carillon suppressions`."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import click

from services.cli import options
from services.cli.exits import Exit, Failure
from services.cli.names import find_app
from services.cli.output.tables import Json, TableColumn
from services.cli.session import Session
from services.cli.verb import noun

suppressions = noun("suppressions")

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
        TableColumn("CAUSE", _cause, "word"),
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
    """How one item ended; a refusal is told by its place among all, for an address is nobody's business."""
    if result["status"] < HTTPStatus.BAD_REQUEST:
        return "created" if result["status"] == HTTPStatus.CREATED else "there"
    session.out.tell(f"{start + result['index'] + 1}: {result['error']['field']}: {result['error']['reason']}")
    return "refused"


def _cause(suppression: Json) -> str:
    return f"{suppression['cause']}, unsubscribe" if _is_both(suppression) else str(suppression["cause"])


def _is_both(suppression: Json) -> bool:
    """Whether it is a bar, and the recipient has unsubscribed too."""
    return bool(suppression.get("unsubscribedAt")) and suppression["cause"] != "unsubscribe"


def _list_of(suppression: Json) -> str:
    return f"the list {suppression['list']}" if suppression["list"] else "any list"
