"""`client.messages`: what became of messages, by their recipient, by what a provider calls them, or by their id."""

from collections.abc import AsyncGenerator
from datetime import datetime

import msgspec
from msgspec import Struct

from carillon.addresses import path_of, query_of
from carillon.calls import M, Resource, call, listing
from carillon.paging import PAGE_SIZE, items


class Attempt(Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of an attempt before the last one."""

    attempt: int
    state: str
    reason: str
    detail: str
    provider_id: str


class Message(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message to one recipient. `state` is `unsent`, `sending`, `unknown`, `sent`, `delivered`, `read`, `failed` or
    `invalid`. `attempt` counts its calls, `round` the retries of its job, `repeated` second calls after one that may
    have succeeded. `reason` is one word, `detail` what the provider said, `provider_id` what it calls the message. The
    `earlier` attempts are only there for a single one. `redacted` says that recipient and details are left out,
    `redacted_at` since when they are forgotten."""

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
    redacted_at: datetime | None = None
    earlier: tuple[Attempt, ...] = ()
    redacted: bool = False


class Redacted(Struct, frozen=True, kw_only=True, rename="camel"):
    """So many messages were `redacted`. Where there may be `more`, ask again."""

    redacted: int
    more: bool


message_decoder = msgspec.json.Decoder(Message)
messages_decoder = msgspec.json.Decoder(list[Message])
_redacted = msgspec.json.Decoder(Redacted)


class Messages(Resource[M]):
    """The messages of apps. All methods raise `CarillonError`."""

    @call
    async def get(self, app_id: str, message_id: str) -> Message:
        """A message and its last attempts. Raises `NotFound`."""
        return (await self._transport.call("GET", _of(app_id, message_id))).read(message_decoder)

    @listing
    def find(
        self,
        app_id: str,
        *,
        recipient: str = "",
        credential: str = "",
        provider_id: str = "",
        limit: int | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[Message]:
        """The app's messages to a recipient, the newest first, or the one that the provider of a credential (its name
        or id) calls so. Read page by page."""
        query = query_of(recipient=recipient, credential=credential, providerId=provider_id)
        return items(self._transport, _of(app_id), query, messages_decoder, limit=limit, page_size=page_size)

    @call
    async def redact(self, app_id: str, recipient: str, *, reason: str = "") -> Redacted:
        """Have the app's messages to this address forget it, and what providers said of them. They count as before.
        What is still to be sent is sent: to stop that, suppress the address first. Raises `NotFound`, `Invalid`."""
        path = path_of("apps", app_id, "recipients", text=recipient)
        return (await self._transport.call("DELETE", path, reason=reason)).read(_redacted)


def _of(app_id: str, *message_id: str) -> str:
    return path_of("apps", app_id, "messages", *message_id)
