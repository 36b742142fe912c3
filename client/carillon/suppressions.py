"""`client.suppressions`: who gets nothing more of an app, and of which of its lists."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from carillon.attempts import query_of
from carillon.calls import PAGE_SIZE, M, Resource, call, listing
from carillon.values import encode
from carillon.wire import ItemError, Result, Short

Channel = Literal["mail", "sms", "push", "other"]
SuppressionCause = Literal["bounce", "complaint", "unsubscribe", "hand"]

ITEMS = 5_000  # the server takes twice as many


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


class SuppressionResult(Result, frozen=True, kw_only=True):
    """The result of the item with this index: `status` is the one that the item would have been answered with on its
    own."""

    id: str | None
    status: int
    error: ItemError | None = None

    @property
    def created(self) -> bool:
        """Whether it is new; one that was there is not, and is no error."""
        return self.status == HTTPStatus.CREATED


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
        return self._send_all(SuppressionResult, suppressions, *path, at_once=ITEMS, reason=reason)

    @call
    async def delete(self, app_id: str, suppression_id: str, *, reason: str = "") -> None:
        """Delete a suppression: its address gets messages again. If it was a bar and the recipient has unsubscribed
        too, the unsubscription stays. Raises `NotFound`."""
        await self._delete("apps", app_id, "suppressions", suppression_id, reason=reason)
