"""`client.messages`: messages to one recipient each, and what became of all, by their recipient, by what a provider
calls them, or by their id."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from datetime import datetime
from http import HTTPStatus

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from carillon.addresses import path_of, query_of
from carillon.calls import M, Resource, call, listing
from carillon.displays import Short
from carillon.encoding import encode
from carillon.errors import CarillonError
from carillon.iterables import each
from carillon.paging import PAGE_SIZE, items
from carillon.single_messages import SendResult, SingleMessage
from carillon.transport import NDJSON, Transport

ITEMS = 500

_GONE = frozenset({int(HTTPStatus.NOT_FOUND)})


class Attempt(Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of an attempt before the last one."""

    attempt: int
    state: str
    reason: str
    detail: str
    provider_id: str


class Message(Short, frozen=True, kw_only=True, rename="camel"):
    """A message to one recipient. `state` is `unsent`, `sending`, `unknown`, `sent`, `delivered`, `read`, `failed` or
    `invalid`. `attempt` counts its calls, `round` the retries of its job, `repeated` second calls after one that may
    have succeeded. `reason` is one word, `detail` what the provider said, `provider_id` what it calls the message. The
    `earlier` attempts and the `subject` of a job's template, with its tags, are only there where it is shown alone.
    `send_at` and `expires_at` are those of a message of no job, others have a `job_id`. `redacted` says that recipient
    and details are left out, `redacted_at` since when they are forgotten."""

    id: str
    credential_id: str
    recipient: str
    state: str
    reason: str
    detail: str
    attempt: int
    round: int
    repeated: int
    provider_id: str
    answered_at: datetime | None
    delivered_at: datetime | None
    read_at: datetime | None
    send_at: datetime | None = None
    expires_at: datetime | None = None
    job_id: str = ""
    template: str = ""
    locale: str = ""
    subject: str = ""
    redacted_at: datetime | None = None
    earlier: tuple[Attempt, ...] = ()
    redacted: bool = False


class Redacted(Struct, frozen=True, kw_only=True, rename="camel"):
    """`redacted` counts the messages that the call redacted. If there may be `more`, call again."""

    redacted: int
    more: bool


message_decoder = msgspec.json.Decoder(Message)
messages_decoder = msgspec.json.Decoder(list[Message])
_results = msgspec.json.Decoder(SendResult)
_redacted = msgspec.json.Decoder(Redacted)


class Messages(Resource[M]):
    """The messages of apps. All methods raise `CarillonError`."""

    @call
    async def send(
        self, app_id: str, message: SingleMessage, *, idempotency_key: str = "", reason: str = ""
    ) -> Message:
        """Send a message to one recipient. Without an `idempotency_key` the attempts of one call send one message, but
        two calls send two. A call beyond the caller's own rate waits, and is attempted again. Raises `Invalid`, and
        `Conflict` where the credential sends nothing now."""
        answer = await self._transport.call(
            "POST",
            _of(app_id),
            content=encode(message),
            idempotency_key=idempotency_key,
            reason=reason,
        )
        return answer.read(message_decoder)

    @listing
    async def send_many(
        self,
        app_id: str,
        messages: Iterable[SingleMessage] | AsyncIterable[SingleMessage],
        *,
        idempotency_key: str = "",
        reason: str = "",
    ) -> AsyncGenerator[SendResult]:
        """As `send`, for many: one result per item, in their order. A bad item does not spoil the others, and what is
        above the caller's rate has the status 429.

        They are taken from `messages` and sent in chunks as the results are asked for, so their number is not
        bounded."""
        index, chunk = 0, []
        async for message in each(messages, self._transport.runtime):
            chunk.append(encode(message))
            if len(chunk) == ITEMS:
                for result in await _send(self._transport, app_id, chunk, _key_of(idempotency_key, index), reason):
                    yield replace(result, index=index + result.index)
                index, chunk = index + len(chunk), []
        if chunk:
            for result in await _send(self._transport, app_id, chunk, _key_of(idempotency_key, index), reason):
                yield replace(result, index=index + result.index)

    @call
    async def cancel(self, app_id: str, message_id: str, *, reason: str = "") -> None:
        """Take back a message that has not been sent. Raises `NotFound`, `Conflict` where it is on its way, was sent,
        or is a job's."""
        await self._transport.call("DELETE", _of(app_id, message_id), reason=reason, done_before=_GONE)

    @call
    async def get(self, app_id: str, message_id: str) -> Message:
        """A message and its last attempts. Raises `NotFound`."""
        return (await self._transport.call("GET", _of(app_id, message_id))).read(message_decoder)

    @listing
    def find(
        self,
        app_id: str,
        recipient: str = "",
        *,
        credential: str = "",
        provider_id: str = "",
        limit: int | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[Message]:
        """The app's messages to a recipient, the newest first, or the one that the provider of a credential (its name
        or id) calls so. Read page by page.

        Raises:
            TypeError: there is neither a recipient nor a provider's id.
        """
        if not recipient and not credential and not provider_id:
            raise TypeError("find(app_id, recipient): give both, or credential and provider_id")
        query = query_of(recipient=recipient, credential=credential, providerId=provider_id)
        return items(self._transport, _of(app_id), query, messages_decoder, limit=limit, page_size=page_size)

    @call
    async def redact(self, app_id: str, recipient: str, *, reason: str = "") -> Redacted:
        """Have the app's messages to this address forget it, and what providers said of them. They count as before.
        Waiting messages are still sent: to stop that, suppress the address first. Raises `NotFound`, `Invalid`."""
        path, query = path_of("apps", app_id, "recipients"), {"address": recipient}
        return (await self._transport.call("DELETE", path, query=query, reason=reason)).read(_redacted)


def _of(app_id: str, *message_id: str) -> str:
    return path_of("apps", app_id, "messages", *message_id)


def _key_of(idempotency_key: str, index: int) -> str:
    """The key of the chunk that begins at this item."""
    return f"{idempotency_key}/{index}" if idempotency_key else ""


async def _send(
    transport: Transport, app_id: str, chunk: Sequence[bytes], idempotency_key: str, reason: str
) -> Sequence[SendResult]:
    answer = await transport.call(
        "POST",
        _of(app_id, "bulk"),
        content=b"\n".join(chunk),
        content_type=NDJSON,
        idempotency_key=idempotency_key,
        reason=reason,
    )
    found = answer.read_lines(_results)
    if [result.index for result in found] != [*range(len(chunk))]:
        raise CarillonError("the answer does not tell of every item, in order", status=answer.status)
    return found
