"""`client.messages`: single messages, jobs of messages and the messages in them; and `client.suppressions`: who gets
none.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr, replace

from carillon.attempts import query_of
from carillon.calls import PAGE_SIZE, M, Resource, call, listing
from carillon.credentials import OnUnknown
from carillon.values import encode, in_utc, nanoseconds
from carillon.wire import ItemError, Result, Short

Channel = Literal["mail", "sms", "push", "other"]
SuppressionCause = Literal["bounce", "complaint", "unsubscribe", "hand"]
SUPPRESSIONS_AT_ONCE = 5_000  # the server takes twice as many


class Suppression(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An address that is to get nothing more by this channel: of `list`, `""` is everything. The cause `unsubscribe`
    lets messages pass that are transactional, the others let none. `default_region` (`SG`) says whose phone numbers
    those without a country code are."""

    channel: Channel
    address: str
    list: str = ""
    cause: SuppressionCause = "hand"
    default_region: str = ""

    def __repr__(self) -> str:
        """Without the address: this ends in logs."""
        return f"Suppression(channel={self.channel!r}, list={self.list!r}, cause={self.cause!r})"


class StoredSuppression(Short, frozen=True, kw_only=True, rename="camel"):
    """A suppression. `address` is `""` if the recipient has unsubscribed by a link, which does not know it.
    `unsubscribed_at` says that they have, whatever the cause. `redacted`: the caller is a viewer, who sees no address.
    `created` tells of the answer to `add` whether it is new."""

    id: str
    app_id: str
    channel: str
    address: str
    list: str
    cause: str
    message_id: str
    at: datetime
    unsubscribed_at: datetime | None = None
    redacted: bool = False
    created: bool = False


class _IdResult(Result, frozen=True, kw_only=True):
    """`status` is the one that the item would have been answered with on its own."""

    id: str | None
    status: int
    error: ItemError | None = None

    @property
    def created(self) -> bool:
        """Whether it is new; one that was there is not, and is no error."""
        return self.status == HTTPStatus.CREATED


class SuppressionResult(_IdResult, frozen=True, kw_only=True):
    """The result of the item with this index: `id` is that of its suppression."""


class Suppressions(Resource[M]):
    """The suppressions of apps. All methods raise `CarillonError`, `NotFound` where there is no such app."""

    @listing
    def list(
        self, app_id: str, *, address: str = "", limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[StoredSuppression]:
        """All of an app, or those of one address, by all channels and of all lists; read page by page."""
        return self._list(
            list[StoredSuppression],
            "apps",
            app_id,
            "suppressions",
            query=query_of(address=address),
            limit=limit,
            page_size=page_size,
        )

    @call
    async def add(self, app_id: str, suppression: Suppression, *, reason: str = "") -> StoredSuppression:
        """Add a suppression: its address gets nothing more. One that is there already stays; a bar takes the place of
        an unsubscription. Raises `Invalid`, also for an address that is none."""
        answer = await self._call("POST", "apps", app_id, "suppressions", content=encode(suppression), reason=reason)
        return replace(answer.read(StoredSuppression), created=answer.status == HTTPStatus.CREATED)

    @listing
    def add_many(
        self, app_id: str, suppressions: Iterable[Suppression] | AsyncIterable[Suppression], *, reason: str = ""
    ) -> AsyncGenerator[SuppressionResult]:
        """As `add`, for many: one result per item, in their order. A bad item does not spoil the others.

        They are taken from `suppressions` and sent in chunks as the results are asked for, so their number is not
        bounded."""
        path = ("apps", app_id, "suppressions", "bulk")
        return self._send_all(SuppressionResult, suppressions, *path, at_once=SUPPRESSIONS_AT_ONCE, reason=reason)

    @call
    async def delete(self, app_id: str, suppression_id: str, *, reason: str = "") -> None:
        """Delete a suppression: its address gets messages again. If it was a bar and the recipient has unsubscribed
        too, the unsubscription stays. Raises `NotFound`."""
        await self._delete("apps", app_id, "suppressions", suppression_id, reason=reason)


class HaltRule(Struct, frozen=True, kw_only=True):
    """A job is held once more than `minimum` of its messages, and more than this `share` of those answered, have
    bounced or been refused."""

    share: float = 0.1
    minimum: int = 10


class MessageJob(Struct, frozen=True, kw_only=True):
    """A job to be started that sends the `template` to each recipient by a `credential`, which is named by its name or
    its id, and when (at once without `starts_at`). `name` is for people; by default the template's. Messages not sent
    by `expires_at` are dropped.

    The recipients are the rows of the file at `csv_path`, as `uploads.put` gave it, or those that `filters` keep of the
    table `<app>_<kind>`; their addresses are in the `recipient_column`. Columns fill the template's tags, else
    `context`.

    A field that is unset takes its default: `halt_on` is 10 % and 10 messages for mail, and never for others (`None`:
    never). A job with more than `max_recipients` is stopped while it is planned.

    Raises:
        ValueError: an instant has no time zone.
    """

    credential: str
    template: str
    csv_path: str = ""
    filters: Mapping[str, str] = {}
    context: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] = {}
    starts_at: datetime | None = None
    expires_at: datetime | None = None
    name: str = ""
    id: str = ""
    recipient_column: str = ""
    locale: str = ""
    default_region: str = ""
    duplicates: Literal["", "once", "each"] = ""
    on_unknown: OnUnknown | Literal[""] = ""
    halt_on: HaltRule | UnsetType | None = UNSET
    share: int = 1
    list: str = ""
    transactional: bool = False
    max_recipients: int = 0

    def __post_init__(self) -> None:
        self._times()

    def query(self) -> Mapping[str, str]:
        """The query beside the body."""
        return {"template": self.template}

    def encoded(self) -> bytes:
        """The body of a request."""
        given: dict[str, Any] = {"credential": self.credential, "filters": self.filters, "share": self.share}
        chosen = {
            "id": self.id,
            "name": self.name,
            "csvPath": self.csv_path,
            "context": self.context,
            "metadata": self.metadata,
            "recipientColumn": self.recipient_column,
            "locale": self.locale,
            "defaultRegion": self.default_region,
            "duplicates": self.duplicates,
            "onUnknown": self.on_unknown,
            "list": self.list,
            "transactional": self.transactional,
            "maxRecipients": self.max_recipients,
        }
        halt = {} if self.halt_on is UNSET else {"haltOn": self.halt_on}
        return encode(given | self._times() | halt | {name: text for name, text in chosen.items() if text})

    def _times(self) -> dict[str, int]:
        return {
            "startsAt": nanoseconds(self.starts_at, "starts_at"),
            "expiresAt": nanoseconds(self.expires_at, "expires_at"),
        }


class MessageCounts(Short, frozen=True, kw_only=True, rename="camel"):
    """The messages of a job by state: `planned` is the sum of the states from `unsent` to `unknown`. `repeated` counts
    second calls of messages whose first one may have succeeded; `held_out` and `duplicates` are not planned."""

    planned: int
    unsent: int
    sending: int
    sent: int
    delivered: int
    read: int
    failed: int
    invalid: int
    unknown: int
    repeated: int
    held_out: int
    duplicates: int


class JobQueue(Struct, frozen=True, kw_only=True, rename="camel"):
    """The work ahead of a job in its credential: the running `jobs` and their unsent `messages`. `starts_in` is
    in seconds; `None` if unknown."""

    jobs: int
    messages: int
    starts_in: float | None


class SingleMessage(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A message to one recipient by a credential (its name or id): what a `template` of the app says, or a `body` of
    its own, with its tags filled by `parameters`. It is sent at `send_at`, by default now, and not from `expires_at`
    on. A message that is not `transactional` does not go to those who have unsubscribed, from `list` or from
    everything.

    Raises:
        ValueError: a time has no time zone.
    """

    credential: str
    to: str
    template: str = ""
    body: Mapping[str, Any] | None = None
    locale: str = "en"
    parameters: Mapping[str, Any] = {}
    default_region: str = ""
    send_at: datetime | None = None
    expires_at: datetime | None = None
    list: str = ""
    transactional: bool = True

    def __post_init__(self) -> None:
        for name in ("send_at", "expires_at"):
            if (moment := getattr(self, name)) is not None:
                force_setattr(self, name, in_utc(moment, name))

    def __repr__(self) -> str:
        """Without what is personal: this ends in logs."""
        return f"SingleMessage(credential={self.credential!r}, template={self.template!r})"


class SendResult(_IdResult, frozen=True, kw_only=True):
    """The result of the item with this index: `id` is that of its message."""


MESSAGES_AT_ONCE = 500


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
        return self._send_all(SendResult, messages, *path, at_once=MESSAGES_AT_ONCE, idempotency_key=key, reason=reason)

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
