"""`POST /apps/{appId}/messages` and its like: messages to one recipient each, at once or at an instant.

body ──> draft: all that can be known to be wrong ──> stored with its occurrence
"""

import asyncio
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct
from msgspec.structs import replace

from carillon.wire import ItemError
from services.api.accounts.apps import app_of
from services.api.http import bodies
from services.api.http.acts import note_name
from services.api.http.bodies import NDJSON, check_size, decode_body, item_error, read_items, status_of, without_frames
from services.api.http.identity import caller_of
from services.api.http.paging import idempotency_of
from services.api.http.rights import OPERATE_APP
from services.api.http.routes import JSON, Parameter, Resource, Route
from services.api.messages.messages import MESSAGE, MESSAGE_ID, MESSAGES, MessageView, message_view
from shared.accounts.rules.apps import App, check_not_deleting
from shared.accounts.rules.callers import Caller
from shared.audience.rules.audiences import normal_locale
from shared.core.errors import Conflict, Invalid, NotFound, Refused, TooMany
from shared.core.ids import Idempotency
from shared.core.instants import from_ms, ms, read_instant
from shared.jobs.moves import ENGLISH, find_templates
from shared.jobs.rules.templates import Template, find_locale
from shared.messages.barring import UnsubscribeLinks
from shared.messages.credentials import CredentialFlow, find_credential
from shared.messages.rules.answers import Channel, Reason
from shared.messages.rules.contents import content_flaw
from shared.messages.rules.credentials import Credential, check_sends
from shared.messages.rules.ledger import Message
from shared.messages.rules.recipients import ADDRESS_CHARACTERS, Malformed, check_region, fit_kind, read_address
from shared.messages.rules.rendering import UNSUBSCRIBE_URL, MessageTexts
from shared.messages.rules.singles import Pending, SingleWish
from shared.messages.rules.suppressions import LIST_CHARACTERS, URL_FIELD, check_list, listing_of
from shared.messages.singles import SendLimiter, SingleFlow
from shared.store import Store
from shared.time import DatabaseTime

_Instant = Annotated[
    str,
    Meta(extra_json_schema={"format": "date-time", "examples": ["2030-01-01T09:00:00Z"]}),
]


class SingleBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A message to one recipient: what a `template` of the app says with these `parameters`, or a `body` of its own.
    Its tags are filled by `parameters`."""

    credential: Annotated[str, Meta(description="The name or the id of the credential that it is sent by.")]
    to: Annotated[
        str,
        Meta(
            description="The recipient: a mail address, a phone number, or a token, as the credential's kind has it.",
            extra_json_schema={"minLength": 1, "maxLength": ADDRESS_CHARACTERS, "examples": ["ana@example.com"]},
        ),
    ]
    template: Annotated[str, Meta(description="The name of a template.")] = ""
    body: Annotated[
        dict[str, Any] | None,
        Meta(description="The content, in place of a template.", extra_json_schema={"examples": [{"text": "Hi"}]}),
    ] = None
    locale: Annotated[str, Meta(description="The locale of the template.", extra_json_schema={"maxLength": 10})] = (
        ENGLISH
    )
    parameters: Annotated[dict[str, Any], Meta(description="The values of the tags.")] = {}
    default_region: Annotated[str, Meta(description="The region of a phone number without a country code.")] = ""
    send_at: Annotated[_Instant | None, Meta(description="When it is sent; by default now.")] = None
    expires_at: Annotated[_Instant | None, Meta(description="From when on it is not sent any more.")] = None
    list: Annotated[
        str,
        Meta(
            description="The list that its recipient can unsubscribe from.",
            extra_json_schema={"maxLength": LIST_CHARACTERS},
        ),
    ] = ""
    transactional: Annotated[bool, Meta(description="Whether it goes to a recipient too who has unsubscribed.")] = True


class SendTimes(Struct, frozen=True):
    """When a message is to be sent, and from when on no more."""

    due: datetime
    expires_at: datetime | None


_decoder = msgspec.json.Decoder(SingleBody)


def read_single(content: bytes) -> SingleBody:
    body = decode_body(content, _decoder)
    if bool(body.template) == (body.body is not None):
        raise Invalid("give either a template or a body", field="template")
    if body.body is not None and not body.body:
        raise Invalid("the body must not be empty", field="body")
    check_list(body.list)
    return body


def read_times(body: SingleBody, now: datetime) -> SendTimes:
    """When it is to be sent, as precise as the store keeps it: now, where that is past. Raises `Invalid`."""
    due = now if body.send_at is None else max(_read(body.send_at, "sendAt"), now)
    expires_at = None if body.expires_at is None else _read(body.expires_at, "expiresAt")
    if expires_at is not None and expires_at < due + timedelta(milliseconds=1):
        raise Invalid("expiresAt must be later than now and sendAt", field="expiresAt", value=body.expires_at)
    return SendTimes(due, expires_at)


def _read(text: str, field: str) -> datetime:
    return from_ms(ms(read_instant(text, field=field)))


_INLINE = "body"
CONTENT_BYTES = 512 * 1024
"""The most that a message may say, as JSON."""


class SingleDraft(Struct, frozen=True):
    """A message, and what it says, as JSON."""

    message: Message
    content: str

    def with_id(self, message_id: str) -> "SingleDraft":
        """The same under this id."""
        return SingleDraft(replace(self.message, id=message_id), self.content)


class SingleDrafts:
    """Drafts the single messages of one request: what several of them name is read once."""

    def __init__(self, store: Store, credentials: CredentialFlow, links: UnsubscribeLinks, app: App) -> None:
        self._store = store
        self._credentials = credentials
        self._links = links
        self._app = app
        self._known: dict[str, Credential] = {}
        self._templates: dict[str, list[Template]] = {}

    async def draft(self, body: SingleBody, *, namespace: str, now: datetime) -> SingleDraft:
        """The message, which has no id yet. Raises `Invalid`, and `Conflict` if the credential sends nothing now."""
        times, region = read_times(body, now), check_region(body.default_region)
        credential = await self._find_credential(body.credential)
        channel = self._credentials.channel_of(credential.kind)
        address = fit_kind(read_address(body.to, channel, region), credential.kind)
        if isinstance(address, Malformed):
            raise Invalid(f"malformed address: {address.why}", field="to")
        templates = await self._find_templates(body)
        content = await asyncio.to_thread(self._render, body, templates, credential, channel, address)
        single = SingleWish(
            channel=channel,
            namespace=namespace,
            created_at=now,
            due=times.due,
            expires_at=times.expires_at,
            template=body.template,
            list=body.list,
            transactional=body.transactional,
        )
        pending = Pending(credential_id=credential.id, namespace=namespace, due=times.due)
        message = Message(
            id="",
            app_id=self._app.id,
            credential_id=credential.id,
            to=address,
            v=1,
            locale=find_locale(body.locale or ENGLISH, {normal_locale(each.locale) for each in templates}) or "",
            single=single,
            pending=pending,
        )
        return SingleDraft(message, content)

    async def _find_credential(self, written: str) -> Credential:
        if written not in self._known:
            self._known[written] = await find_credential(self._store, self._app.id, written)
        check_sends(self._known[written])
        return self._known[written]

    async def _find_templates(self, body: SingleBody) -> list[Template]:
        """The template in all its locales, or the body as one."""
        if body.body is not None:
            inline = Template(
                id="",
                app_id=self._app.id,
                name=_INLINE,
                locale=(body.locale or ENGLISH).lower(),
                body=body.body,
                created_at=0,
            )
            return [inline]
        name = body.template
        if name not in self._templates:
            self._templates[name] = await find_templates(self._store, self._app.id, (name,))
        return self._templates[name]

    def _render(
        self, body: SingleBody, templates: list[Template], credential: Credential, channel: Channel, address: str
    ) -> str:
        texts = MessageTexts(templates, body.parameters, locale=body.locale or ENGLISH)
        texts.check_filled(())
        self._credentials.check_content(credential, texts.default_template.body)
        url = self._links.url_of(listing_of(self._app.id, channel, address, body.list))
        if UNSUBSCRIBE_URL in texts.tags and not url:
            raise Invalid(
                "invalid template: {{unsubscribe_url}} needs api.public_url and providers.secret_keys", field="template"
            )
        [content] = texts.render({UNSUBSCRIBE_URL: [url]}, 1)
        if content is None:
            raise Invalid("the message would be too large", field="parameters")
        if flaw := content_flaw(content, credential):
            raise Invalid(f"the message cannot be sent with its tags filled: {flaw}", field="parameters")
        has_button = channel is Channel.MAIL and not body.transactional and url
        written = msgspec.json.encode({**content, URL_FIELD: url} if has_button else content)
        if len(written) > CONTENT_BYTES:
            raise Invalid(f"a message says {CONTENT_BYTES:,} bytes as JSON at most", field="parameters")
        return written.decode()


ITEMS = 500
BODY_BYTES = 16 * 2**20
KEY = Parameter(
    name="Idempotency-Key",
    description="Kept for 24 hours. A repeated request with the same key sends nothing again, and is answered with the "
    "same messages.",
    schema={"type": "string", "minLength": 1, "maxLength": 255},
    place="header",
)
_STORED_AT_ONCE = 50
_TOO_MANY = TooMany("this caller may send no more now", retry_after_seconds=1)
_PROBLEMS = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)


class MessageItemView(Struct, frozen=True, kw_only=True):
    """The result of one item: `status` is the answer that it would have got on its own."""

    index: int
    id: str | None
    status: int
    error: ItemError | None = None


class SingleSendsResource(Resource):
    def __init__(
        self,
        store: Store,
        flow: SingleFlow,
        limiter: SendLimiter,
        credentials: CredentialFlow,
        links: UnsubscribeLinks,
        time: DatabaseTime,
    ) -> None:
        self._store = store
        self._flow = flow
        self._limiter = limiter
        self._credentials = credentials
        self._links = links
        self._time = time

    @Route(
        "POST", MESSAGES, summary="Send a message to one recipient by a credential, at once or at an instant.",
        act="message.send", who=OPERATE_APP, body=SingleBody,
        answers={HTTPStatus.CREATED: MessageView, HTTPStatus.OK: MessageView},
        problems=_PROBLEMS, parameters=(KEY,),
    )  # fmt: skip
    async def send_message(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        content, app = await request.body(), await self._require_app(app_id)
        used = idempotency_of(request, (f"messages of {app.id}", "", content))
        body, caller = read_single(content), caller_of(request)
        if used is not None and (earlier := await self._find_earlier(used)) is not None:
            return bodies.answer(message_view(earlier, personal=True, single=True))
        await self._limiter.let_through(caller.namespace, rate=caller.messages_per_second)
        drafted = await self._drafts(app).draft(body, namespace=caller.namespace, now=await self._now())
        draft = drafted.with_id(await self._claim(used))
        there = await self._flow.accept([draft.message], {draft.message.id: draft.content})
        message = there.get(draft.message.id, draft.message)
        status = HTTPStatus.OK if there else HTTPStatus.CREATED
        return bodies.answer(message_view(message, personal=True, single=True), status)

    @Route(
        "POST", MESSAGES + "/bulk",
        summary="Send up to 500 messages to one recipient each, given as an array or a line each "
                "(application/x-ndjson). One bad item does not spoil the others.",
        act="message.send-many", who=OPERATE_APP,
        body=list[SingleBody], body_media=(JSON, NDJSON), max_body_bytes=BODY_BYTES,
        answers={HTTPStatus.OK: list[MessageItemView]}, problems=_PROBLEMS, parameters=(KEY,),
    )  # fmt: skip
    async def send_messages(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        content, app = await request.body(), await self._require_app(app_id)
        used = idempotency_of(request, (f"many messages of {app.id}", "", content))
        body, caller = read_items(request, content, most=ITEMS), caller_of(request)
        first_id = uuid.UUID(await self._claim(used))
        ids = [str(uuid.uuid5(first_id, str(index))) for index in range(len(body.items))]
        there = {*await self._store.messages.with_ids(ids)} if used is not None else set[str]()
        fresh = [index for index, id_ in enumerate(ids) if id_ not in there]
        room = await self._room(caller, len(fresh))
        judged: dict[int, Refused | None] = dict.fromkeys(fresh[room:], _TOO_MANY)
        drafts, now = self._drafts(app), await self._now()
        for start in range(0, room, _STORED_AT_ONCE):
            chunk = fresh[start : min(start + _STORED_AT_ONCE, room)]
            read = {index: await _draft(drafts, body.items[index], caller.namespace, now) for index in chunk}
            await self._accept([draft.with_id(ids[at]) for at, draft in read.items() if isinstance(draft, SingleDraft)])
            judged |= {at: None if isinstance(draft, SingleDraft) else draft for at, draft in read.items()}
        return body.answer([_view(index, id_, judged.get(index), id_ in there) for index, id_ in enumerate(ids)])

    @Route(
        "DELETE", MESSAGE, summary="Take back a message that has not been sent.",
        act="message.cancel", who=OPERATE_APP, answers={HTTPStatus.NO_CONTENT: None},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), segments={"message_id": MESSAGE_ID},
    )  # fmt: skip
    async def cancel_message(self, app_id: FromPath[str], message_id: FromPath[str]) -> Response[None]:
        app = await app_of(self._store, app_id)
        while True:
            message = await self._store.messages.get(message_id)
            if message is None or message.app_id != app.id:
                raise NotFound("the app has no message with this id", field="messageId", value=message_id)
            note_name("message", message.id)
            if message.single is None:
                raise Conflict("a job sends this message: stop the job", field="messageId", value=message_id)
            if message.reason == Reason.CANCELLED:
                return bodies.empty()
            if not message.is_unsent:
                raise Conflict(f"the message is {message.state.value}", field="messageId", value=message_id)
            if await self._flow.cancel(message):
                return bodies.empty()

    async def _require_app(self, app_id: str) -> App:
        app = await app_of(self._store, app_id)
        check_not_deleting(app, app.id)
        return app

    async def _now(self) -> datetime:
        return from_ms(ms(await self._time.now()))

    def _drafts(self, app: App) -> SingleDrafts:
        return SingleDrafts(self._store, self._credentials, self._links, app)

    async def _claim(self, used: Idempotency | None) -> str:
        fresh = str(uuid.uuid4())
        return fresh if used is None else (await self._store.idempotency.claim(used, made=fresh)).made

    async def _find_earlier(self, used: Idempotency) -> Message | None:
        first = await self._store.idempotency.recall(used)
        return None if first is None else await self._store.messages.get(first.made)

    async def _room(self, caller: Caller, count: int) -> int:
        """How many of `count` new messages the caller may send now. Raises `TooMany` if that is none."""
        if not count:
            return 0
        return await self._limiter.let_through(caller.namespace, rate=caller.messages_per_second, count=count)

    async def _accept(self, drafts: Sequence[SingleDraft]) -> None:
        by_credential: dict[str, list[SingleDraft]] = {}
        for each in drafts:
            by_credential.setdefault(each.message.credential_id, []).append(each)
        for some in by_credential.values():
            await self._flow.accept([each.message for each in some], {each.message.id: each.content for each in some})


async def _draft(drafts: SingleDrafts, item: bytes, namespace: str, now: datetime) -> SingleDraft | Refused:
    try:
        check_size(item)
        return await drafts.draft(read_single(item), namespace=namespace, now=now)
    except Refused as error:
        return without_frames(error)


def _view(index: int, message_id: str, refused: Refused | None, there: bool) -> MessageItemView:
    if refused is not None:
        return MessageItemView(index=index, id=None, status=status_of(refused), error=item_error(refused))
    return MessageItemView(index=index, id=message_id, status=HTTPStatus.OK if there else HTTPStatus.CREATED)
