"""Unsubscribing by a recipient's link, and subscribing again by the same link.

The link contains a token that names the suppression, so it works after its message was redacted. Repeating a move has
no effect. Links neither add nor lift a bar (a bounce, a complaint, or one by a user of the app).
"""

from collections.abc import Sequence
from functools import cached_property

from shared.domain.accounts.apps import App
from shared.domain.errors import NotFound
from shared.domain.instants import from_ms, ms
from shared.domain.messages.channels import Channel
from shared.domain.messages.suppressions import SubscriptionState, subscription_of, unsubscribe_listing
from shared.domain.messages.unsubscribing import EVERYTHING, Listing, UnsubscribeTokens, listing_of
from shared.runtime.clock import Clock
from shared.secrets import KeyRing
from shared.store import Store

PATH = "/u/"
"""The path of links below the public URL."""

_PURPOSE = "unsubscribing"


class UnsubscribeLinks:
    """Makes links below `public_url`, and reads their tokens. The first key signs; all keys verify."""

    def __init__(self, keys: KeyRing, *, public_url: str) -> None:
        self._keys = keys
        self._public_url = public_url.rstrip("/")

    @property
    def can_link(self) -> bool:
        """Whether there is a key to sign with and a public URL."""
        return self._tokens is not None and bool(self._public_url)

    @property
    def missing_setting(self) -> str:
        """The setting that links lack; `""` if none."""
        if not self._public_url:
            return "api.public_url"
        return "" if self._tokens is not None else "providers.secret_keys"

    def url_of(self, listing: Listing) -> str:
        """The link of this recipient; `""` if links are impossible."""
        return f"{self._public_url}{PATH}{self._tokens.make(listing)}" if self._tokens and self._public_url else ""

    def urls_of(
        self, app_id: str, channel: Channel, addresses: Sequence[str], list_name: str = EVERYTHING
    ) -> list[str]:
        """The links of addresses in normal form; each `""` if links are impossible."""
        if not self.can_link:
            return [""] * len(addresses)
        return [self.url_of(listing_of(app_id, channel, address, list_name)) for address in addresses]

    def read(self, token: str) -> Listing:
        """The recipient and list of the token. Raises `NotFound` unless one of the keys has signed it."""
        listing = None if self._tokens is None else self._tokens.read(token)
        if listing is None:
            raise NotFound("this link is not one of ours")
        return listing

    @cached_property
    def _tokens(self) -> UnsubscribeTokens | None:
        keys = self._keys.derive(_PURPOSE)
        return UnsubscribeTokens(keys) if keys else None


class UnsubscribeFlow:
    """The moves of recipients by their links. All raise `NotFound` for an invalid token, or if the app is gone."""

    def __init__(self, store: Store, links: UnsubscribeLinks, clock: Clock) -> None:
        self._store = store
        self._links = links
        self._clock = clock

    async def look(self, token: str) -> tuple[App, SubscriptionState]:
        listing, app = await self._read(token)
        return app, await self._find(listing)

    async def unsubscribe(self, token: str) -> tuple[App, SubscriptionState]:
        listing, app = await self._read(token)
        await self._store.suppressions.add([unsubscribe_listing(listing, at=from_ms(ms(self._clock.now())))])
        return app, await self._find(listing)

    async def come_back(self, token: str) -> tuple[App, SubscriptionState]:
        """Take back the recipient's unsubscription from the token's list."""
        listing, app = await self._read(token)
        await self._store.suppressions.resubscribe(listing.suppression_id)
        return app, await self._find(listing)

    async def _read(self, token: str) -> tuple[Listing, App]:
        listing = self._links.read(token)
        app = await self._store.apps.get(listing.app_id)
        if app is None:
            raise NotFound("the app of this link is gone")
        return listing, app

    async def _find(self, listing: Listing) -> SubscriptionState:
        ids = {listing.suppression_id, listing.of_everything.suppression_id}
        return subscription_of(listing, [*(await self._store.suppressions.with_ids(sorted(ids))).values()])
