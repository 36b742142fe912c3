"""`/apps/{appId}/messages`: the messages to a recipient or of one id, as clients see them; and the erasure of a
recipient from all messages.
"""

import csv
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from io import StringIO
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from services.api.accounts.apps import APP, app_of
from services.api.http import bodies, paging
from services.api.http.bodies import Timestamp
from services.api.http.rights import OPERATE_APP, VIEW_APP, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from shared.core.errors import Invalid, NotFound
from shared.core.instants import LATEST, format_instant, format_maybe, from_ms, ms
from shared.drivers.mongo.documents import Page
from shared.messages.credentials import find_credential
from shared.messages.retention import RecipientRedaction
from shared.messages.rules.ledger import EarlierAttempt, Message, MessageState, incarnation_of
from shared.messages.rules.recipients import ADDRESS_CHARACTERS, check_plus, mask, spellings_of
from shared.messages.rules.singles import SingleWish
from shared.messages.store_jobs import MessageSource
from shared.messages.store_ledger import Dated
from shared.store import Store

_ABOUT = "An address as people write it. Phone numbers begin with + and the country."
_ADDRESS = {"type": "string", "minLength": 1, "maxLength": ADDRESS_CHARACTERS}
_RECIPIENTS = APP + "/recipients"
_IN_QUERY = Parameter(name="address", description=_ABOUT, schema=_ADDRESS, required=True)


class RedactedView(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many messages have forgotten their recipient, and whether there may be more: then ask again."""

    redacted: int
    more: bool


_route = partial(
    Route, act="recipient.redact", who=OPERATE_APP, answers={HTTPStatus.OK: RedactedView},
    problems=(HTTPStatus.NOT_FOUND,), masks={"address": mask},
)  # fmt: skip


class RecipientsResource(Resource):
    """The routes of recipients. An address in the path is exactly what was sent. Programs and proxies on the way may
    change one with slashes or dots, but none in the query."""

    def __init__(self, store: Store, redaction: RecipientRedaction) -> None:
        self._store = store
        self._redaction = redaction

    @_route(
        "DELETE", _RECIPIENTS,
        summary="Have an app's messages to one address, by all channels, forget it, and what providers said of them. "
                "They count as before. Waiting messages are still sent: to stop that, suppress the address first.",
        parameters=(_IN_QUERY,),
    )  # fmt: skip
    async def redact_recipient(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        return await self._redact(app_id, address_of(request, _IN_QUERY.name))

    @_route(
        "DELETE", _RECIPIENTS + "/{address:path}",
        summary="The same, with the address in the path, each slash as %2F.",
        segments={"address": _ADDRESS | {"description": _ABOUT}},
    )  # fmt: skip
    async def redact_recipient_in_path(self, app_id: FromPath[str], address: FromPath[str]) -> Response[bytes]:
        return await self._redact(app_id, address)

    async def _redact(self, app_id: str, address: str) -> Response[bytes]:
        app = await app_of(self._store, app_id)
        redacted, more = await self._redaction.redact(app.id, address)
        return bodies.answer(RedactedView(redacted=redacted, more=more))


def address_of(request: Request[Any, Any, Any], name: str) -> str:
    """The address that this parameter of the query has, `""` without one. Raises `Invalid` for several, and
    for a raw `+`, which means a blank there."""
    values = request.query_params.getall(name, [])
    if len(values) > 1 or any("\ufffd" in value for value in values):
        raise Invalid(f"{name} must be one address in UTF-8", field=name)
    address = str(values[0]) if values else ""
    if b"+" in request.scope["query_string"]:
        check_plus(address, name)
    return address


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
        earlier = [replace(each, detail=bodies.hide(each.detail)) for each in earlier]
    hidden = {"recipient": bodies.hide(view.recipient), "detail": bodies.hide(view.detail)}
    return replace(view, **hidden, earlier=earlier, redacted=True)


MESSAGES = APP + "/messages"
MESSAGE = MESSAGES + "/{message_id:str}"
_RECIPIENT = Parameter(
    name="recipient",
    description="An address as people write it; messages to its normal forms are found. Phone numbers begin with + "
    "and the country.",
    schema={"type": "string", "minLength": 1, "maxLength": ADDRESS_CHARACTERS},
)
_CREDENTIAL = Parameter(
    name="credential",
    description="With `providerId`: the name or the id of the credential.",
    schema={"type": "string"},
)
_PROVIDER_ID = Parameter(
    name="providerId",
    description="With `credential`, in the place of `recipient`: what the provider calls the message.",
    schema={"type": "string", "minLength": 1},
)
MESSAGE_ID = {"type": "string", "description": "The id of the message."}
RUNNING_HEADER = "x-carillon-running-jobs"
_COUNTED = 1_000


class MessagePosition(Struct, frozen=True, array_like=True):
    at: Annotated[int, Meta(ge=0, le=ms(LATEST))]
    id: str


class MessagesResource(Resource):
    def __init__(self, store: Store) -> None:
        self._store = store

    @Route(
        "GET", MESSAGES,
        summary="List the messages of an app to one `recipient`, the newest first, or find the one that a provider "
                "calls so, by `credential` and `providerId`. Messages that wait in jobs are not searched: "
                f"on the first page, the header `{RUNNING_HEADER}` counts the app's jobs of messages that have begun "
                "and have not ended.",
        who=OPERATE_APP, answers={HTTPStatus.OK: list[MessageView]}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(_RECIPIENT, _CREDENTIAL, _PROVIDER_ID), paged=True,
    )  # fmt: skip
    async def find_messages(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        asked, app = paging.read_page(request, MessagePosition), await app_of(self._store, app_id)
        recipient = address_of(request, _RECIPIENT.name)
        credential, provider_id = (paging.first(request, each.name) for each in (_CREDENTIAL, _PROVIDER_ID))
        _check_question(recipient, credential, provider_id)
        if recipient:
            found = await self._find_recipient(app.id, recipient, asked)
        else:
            found = await self._find_ref(app.id, credential, provider_id)
        headers = paging.links(request, asked, found, lambda dated: MessagePosition(ms(dated.at), dated.message.id))
        if asked.after is None:
            under_way = await self._store.message_jobs.count_under_way(app.id, most=_COUNTED)
            headers |= {RUNNING_HEADER: str(under_way)}
        sources = await self._store.message_jobs.sources_of({incarnation_of(dated.message.id) for dated in found})
        views = [
            message_view(dated.message, personal=True, source=sources.get(incarnation_of(dated.message.id)))
            for dated in found
        ]
        return bodies.answer(views, headers=headers)

    @Route(
        "GET", MESSAGE, summary="Show a message and its last attempts.",
        who=VIEW_APP, answers={HTTPStatus.OK: MessageView}, problems=(HTTPStatus.NOT_FOUND,),
        segments={"message_id": MESSAGE_ID},
    )  # fmt: skip
    async def get_message(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], message_id: FromPath[str]
    ) -> Response[bytes]:
        app, message = await app_of(self._store, app_id), await self._store.messages.get(message_id)
        if message is None or message.app_id != app.id:
            raise NotFound("the app has no message with this id", field="messageId", value=message_id)
        jobs, incarnation = self._store.message_jobs, incarnation_of(message.id)
        source = None if message.single else (await jobs.sources_of([incarnation])).get(incarnation)
        view = message_view(message, personal=sees_personal_data(request), single=True, source=source)
        if source is not None:
            view = replace(view, subject=await jobs.get_subject(incarnation, message.locale or source.locale))
        return bodies.answer(view)

    async def _find_recipient(self, app_id: str, recipient: str, asked: paging.Asked[MessagePosition]) -> Page[Dated]:
        before = None if asked.after is None else (from_ms(asked.after.at), asked.after.id)
        addresses = spellings_of(recipient)
        return await self._store.message_lists.find_recipient(app_id, addresses, before=before, limit=asked.limit)

    async def _find_ref(self, app_id: str, written: str, provider_id: str) -> Page[Dated]:
        credential = await find_credential(self._store, app_id, written)
        found = await self._store.message_lists.find_ref(app_id, f"{credential.id}/{provider_id}")
        return Page(Dated(message, from_ms(0)) for message in found)


def _check_question(recipient: str, credential: str, provider_id: str) -> None:
    if bool(recipient) == bool(credential or provider_id):
        raise Invalid("either recipient is needed, or credential and providerId", field="recipient", value=recipient)
    for name, value in (("credential", credential), ("providerId", provider_id)):
        if not recipient and not value:
            raise Invalid(f"{name} is needed where no recipient is given", field=name)
