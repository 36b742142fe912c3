"""`POST /apps/{appId}/messages` and its like: messages to one recipient each, at once or at an instant.

A caller may send so many a second (`messagesPerSecond` of its token). Messages that come faster are answered with 429,
and nothing of them is stored. So are those that would make too many wait.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.accounts.apps import app_of
from services.api.http import wire
from services.api.http.acts import note_name
from services.api.http.bulk_items import NDJSON, ItemError, check_size, read_items, status_of, without_frames
from services.api.http.idempotency import idempotency_of
from services.api.http.identity import caller_of
from services.api.http.rights import OPERATE_APP
from services.api.http.routes import JSON, Parameter, Resource, Route
from services.api.messages.message_view import MessageView, message_view
from services.api.messages.messages import MESSAGE, MESSAGE_ID, MESSAGES
from services.api.messages.single_body import SingleBody, read_single
from services.api.messages.single_drafts import SingleDraft, SingleDrafts
from shared.domain.accounts.apps import App, check_not_deleting
from shared.domain.accounts.callers import Caller
from shared.domain.errors import Conflict, NotFound, Refused, TooMany
from shared.domain.idempotency import Idempotency
from shared.domain.instants import from_ms, ms
from shared.domain.messages.answers import Reason
from shared.domain.messages.ledger import Message
from shared.flow.messages.credentials import CredentialFlow
from shared.flow.messages.singles import SendLimiter, SingleFlow
from shared.flow.messages.unsubscribing import UnsubscribeLinks
from shared.flow.time import DatabaseTime
from shared.store import Store

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
    """The routes by which single messages are sent."""

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
            return wire.answer(message_view(earlier, personal=True, single=True))
        await self._limiter.let_through(caller.namespace, rate=caller.messages_per_second)
        drafted = await self._drafts(app).draft(body, namespace=caller.namespace, now=await self._now())
        draft = drafted.with_id(await self._claim(used))
        there = await self._flow.accept([draft.message], {draft.message.id: draft.content})
        message = there.get(draft.message.id, draft.message)
        status = HTTPStatus.OK if there else HTTPStatus.CREATED
        return wire.answer(message_view(message, personal=True, single=True), status)

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
                return wire.empty()
            if not message.is_unsent:
                raise Conflict(f"the message is {message.state.value}", field="messageId", value=message_id)
            if await self._flow.cancel(message):
                return wire.empty()

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
        return MessageItemView(index=index, id=None, status=status_of(refused), error=ItemError.of(refused))
    return MessageItemView(index=index, id=message_id, status=HTTPStatus.OK if there else HTTPStatus.CREATED)
