"""`client.messages`: messages to one recipient each, and what became of all, by their recipient, by what a provider
calls them, or by their id."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from datetime import datetime

from msgspec import Struct

from carillon.addresses import query_of
from carillon.calls import M, Resource, call, listing
from carillon.displays import Short
from carillon.encoding import encode
from carillon.paging import PAGE_SIZE
from carillon.single_messages import SendResult, SingleMessage

ITEMS = 500


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


class Messages(Resource[M]):
    """The messages of apps. All methods raise `CarillonError`."""

    @call
    async def send(
        self, app_id: str, message: SingleMessage, *, idempotency_key: str = "", reason: str = ""
    ) -> Message:
        """Send a message to one recipient. Without an `idempotency_key` the attempts of one call send one message, but
        two calls send two. A call beyond the caller's own rate waits, and is attempted again. Raises `Invalid`, and
        `Conflict` where the credential sends nothing now."""
        return await self._post(
            Message, "apps", app_id, "messages", content=encode(message), idempotency_key=idempotency_key, reason=reason
        )

    @listing
    def send_many(
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
        path, key = ("apps", app_id, "messages", "bulk"), idempotency_key
        return self._send_all(SendResult, messages, *path, at_once=ITEMS, idempotency_key=key, reason=reason)

    @call
    async def cancel(self, app_id: str, message_id: str, *, reason: str = "") -> None:
        """Take back a message that has not been sent. Raises `NotFound`, `Conflict` where it is on its way, was sent,
        or is a job's."""
        await self._delete("apps", app_id, "messages", message_id, reason=reason)

    @call
    async def get(self, app_id: str, message_id: str) -> Message:
        """A message and its last attempts. Raises `NotFound`."""
        return await self._get(Message, "apps", app_id, "messages", message_id)

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
        return self._list(list[Message], "apps", app_id, "messages", query=query, limit=limit, page_size=page_size)

    @call
    async def redact(self, app_id: str, recipient: str, *, reason: str = "") -> Redacted:
        """Have the app's messages to this address forget it, and what providers said of them. They count as before.
        Waiting messages are still sent: to stop that, suppress the address first. Raises `NotFound`, `Invalid`."""
        query = {"address": recipient}
        return (await self._call("DELETE", "apps", app_id, "recipients", query=query, reason=reason)).read(Redacted)
