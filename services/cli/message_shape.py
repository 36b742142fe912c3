"""Messages as tables, pages and CSV files show them."""

import csv
import sys
from collections.abc import Iterable, Sequence

from services.cli.output.out import Fields, Output
from services.cli.output.tables import Json, TableColumn, state_column
from services.cli.output.text import visible

MESSAGE_STATES = ("unsent", "sending", "unknown", "sent", "delivered", "read", "failed", "invalid")

_COLUMNS = (
    "id", "recipient", "state", "reason", "detail", "attempt", "round", "repeated", "providerId", "answeredAt",
    "deliveredAt", "readAt", "redactedAt",
)  # fmt: skip
_SAID_BY_OTHERS = {"reason", "detail", "providerId"}
_RUN_BY_SPREADSHEETS = ("=", "+", "-", "@", "\t", "\r")


def message_columns(out: Output, *, of_app: bool = False) -> Sequence[TableColumn]:
    """The columns of a list of messages of a job, or with `of_app` of many jobs."""
    sources = (
        TableColumn("JOB", lambda message: message.get("jobId", ""), "id"),
        TableColumn("TEMPLATE", template_of),
    )
    return (
        TableColumn("ID", lambda message: message["id"], "id"),
        TableColumn("RECIPIENT", _recipient_of),
        state_column("STATE", lambda message: message["state"]),
        TableColumn("REASON", reason_of, "word"),
        *(sources if of_app else ()),
        TableColumn("ANSWERED", lambda message: _when(out, message["answeredAt"]), "word"),
        TableColumn("DETAIL", lambda message: message["detail"]),
    )


def message_fields(out: Output, message: Json) -> Fields:
    """The non-empty fields of a message."""
    times = {name: message[f"{name}At"] for name in ("answered", "delivered", "read", "redacted")}
    return [
        ("id", message["id"]),
        ("credential", message["credentialId"]),
        ("recipient", _recipient_of(message)),
        ("job", message.get("jobId", "")),
        ("template", template_of(message)),
        ("subject", message.get("subject", "")),
        ("for", _when(out, message.get("sendAt"))),
        ("until", _when(out, message.get("expiresAt"))),
        ("state", message["state"]),
        ("reason", reason_of(message)),
        ("detail", message["detail"]),
        ("attempts", str(message["attempt"])),
        ("repeated", str(message["repeated"]) if message["repeated"] else ""),
        ("provider's id", message["providerId"]),
        *((name, _when(out, at)) for name, at in times.items()),
        ("earlier", [_attempt_line(each) for each in message.get("earlier", [])]),
        ("left out", _what_is_left_out(message)),
    ]


def _recipient_of(message: Json) -> str:
    return str("(redacted)" if message["redactedAt"] else message["recipient"].strip() or "(blank)")


def template_of(message: Json) -> str:
    """The template's name and locale."""
    name, locale = message.get("template", ""), message.get("locale", "")
    return f"{name} ({locale})" if name and locale else name


def reason_of(message: Json) -> str:
    """The reason, in words if one word could be taken for a failure."""
    is_unsubscribed = message["state"] == "invalid" and message["reason"] == "unsubscribed"
    return "not sent: unsubscribed" if is_unsubscribed else str(message["reason"])


def _what_is_left_out(message: Json) -> str:
    if not message["redacted"]:
        return ""
    return "personal data: " + ("it is forgotten" if message["redactedAt"] else "you are a viewer")


def write_csv(messages: Iterable[Json]) -> None:
    """Write all messages to stdout, a page at a time, as the API writes them."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for message in messages:
        writer.writerow([_cell(name, message[name]) for name in _COLUMNS])


def _when(out: Output, at: str | None) -> str:
    return out.when(at) if at else ""


def _cell(name: str, value: object) -> object:
    """A formula that a spreadsheet would run becomes text; recipients stay, because phone numbers begin with a plus."""
    text = "" if value is None else value
    if name in _SAID_BY_OTHERS and str(text).startswith(_RUN_BY_SPREADSHEETS):
        return f"'{text}"
    return text


def _attempt_line(earlier: Json) -> str:
    said = "  ".join(part for part in (earlier["state"], earlier["reason"], earlier["detail"]) if part)
    return visible(f"{earlier['attempt']}  {said}")
