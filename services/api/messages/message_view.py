"""A message as clients see it, alone, in a page, or in a line of an export."""

import csv
from collections.abc import Sequence
from io import StringIO

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from services.api.http import wire
from services.api.http.wire import Timestamp
from shared.domain.instants import format_instant, format_maybe
from shared.domain.messages.ledger import EarlierAttempt, Message, MessageState
from shared.domain.messages.singles import SingleWish
from shared.store.messages.jobs import MessageSource

COLUMNS = (
    "id",
    "recipient",
    "state",
    "reason",
    "detail",
    "attempt",
    "round",
    "repeated",
    "providerId",
    "answeredAt",
    "deliveredAt",
    "readAt",
    "redactedAt",
)
"""The columns of a CSV file of messages."""

_RUN_BY_SPREADSHEETS = ("=", "+", "-", "@", "\t", "\r")


class AttemptView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of an attempt before the last one."""

    attempt: int
    state: MessageState
    reason: str
    detail: str
    provider_id: str


class MessageView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message to one recipient. `attempt` counts its calls, `round` the retries of its job when it was last called,
    `repeated` second calls after one that may have succeeded. `reason` is one word, `detail` what the provider said;
    `providerId` is what it calls the message. One of a job has the `jobId`, unless the job was deleted; one that was
    asked for alone has `sendAt` and `expiresAt`. `template` and `locale` name what was sent; `""`: a body of its own.
    One that is shown alone has its `earlier` attempts, the last five, and one of a job the `subject` of its template,
    with the tags, which are filled when it is sent. `redacted` says that recipient
    and details are left out: because the caller is a viewer or, where there is a `redactedAt`, because they are
    forgotten."""

    id: str
    credential_id: str
    recipient: str
    state: MessageState
    reason: str
    detail: str
    attempt: int
    round: int
    repeated: int
    provider_id: str
    answered_at: Timestamp | None
    delivered_at: Timestamp | None
    read_at: Timestamp | None
    redacted_at: Timestamp | None
    send_at: Timestamp | UnsetType = UNSET
    expires_at: Timestamp | UnsetType | None = UNSET
    job_id: str | UnsetType = UNSET
    template: str | UnsetType = UNSET
    locale: str | UnsetType = UNSET
    subject: str | UnsetType = UNSET
    earlier: list[AttemptView] | UnsetType = UNSET
    redacted: bool = False


def message_view(
    message: Message, *, personal: bool, single: bool = False, source: MessageSource | None = None
) -> MessageView:
    """The message, which comes from this `source` if it is a job's; without what is personal unless `personal`."""
    times = (message.answered_at, message.delivered_at, message.read_at, message.redacted_at)
    answered, delivered, read, redacted = (format_maybe(at) for at in times)
    view = MessageView(
        id=message.id,
        credential_id=message.credential_id,
        recipient=message.to,
        state=message.state,
        reason=message.reason,
        detail=message.detail,
        attempt=message.attempt,
        round=message.round,
        repeated=message.repeated,
        provider_id=_provider_id(message.ref, message.credential_id),
        answered_at=answered,
        delivered_at=delivered,
        read_at=read,
        redacted_at=redacted,
        redacted=redacted is not None,
        earlier=[_attempt_view(each, message.credential_id) for each in message.earlier] if single else UNSET,
    )
    if message.single is not None:
        view = replace(_with_wishes(view, message.single), locale=message.locale if message.single.template else "")
    elif source is not None:
        locale = message.locale or source.locale
        view = replace(view, job_id=source.job_id, template=source.template, locale=locale)
    return view if personal else _redact(view)


def csv_header() -> bytes:
    """The first line of a CSV file."""
    return (",".join(COLUMNS) + "\r\n").encode()


def as_csv(views: Sequence[MessageView]) -> bytes:
    """A line of a CSV file each. A formula that a spreadsheet would run becomes a text; recipients stay as they are, as
    phone numbers begin with a plus."""
    text = StringIO()
    writer = csv.writer(text)
    for view in views:
        writer.writerow(
            (
                view.id,
                view.recipient,
                view.state.value,
                _as_text(view.reason),
                _as_text(view.detail),
                view.attempt,
                view.round,
                view.repeated,
                _as_text(view.provider_id),
                view.answered_at or "",
                view.delivered_at or "",
                view.read_at or "",
                view.redacted_at or "",
            )
        )
    return text.getvalue().encode()


def as_ndjson(views: Sequence[MessageView]) -> bytes:
    """A line of JSON each."""
    return _lines.encode_lines(views)


_lines = msgspec.json.Encoder()


def _as_text(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_RUN_BY_SPREADSHEETS) else cell


def _provider_id(ref: str, credential_id: str) -> str:
    return ref.removeprefix(f"{credential_id}/")


def _attempt_view(earlier: EarlierAttempt, credential_id: str) -> AttemptView:
    return AttemptView(
        attempt=earlier.attempt,
        state=earlier.state,
        reason=earlier.reason,
        detail=earlier.detail,
        provider_id=_provider_id(earlier.ref, credential_id),
    )


def _with_wishes(view: MessageView, single: SingleWish) -> MessageView:
    expires_at = format_maybe(single.expires_at)
    return replace(view, send_at=format_instant(single.due), expires_at=expires_at, template=single.template)


def _redact(view: MessageView) -> MessageView:
    earlier = view.earlier
    if not isinstance(earlier, UnsetType):
        earlier = [replace(each, detail=wire.hide(each.detail)) for each in earlier]
    hidden = {"recipient": wire.hide(view.recipient), "detail": wire.hide(view.detail)}
    return replace(view, **hidden, earlier=earlier, redacted=True)
