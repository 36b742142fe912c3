"""Recipients that a message must not reach: bars, answers that suppress a recipient, and unsubscriptions by link.

The link contains a token that names the suppression, so it works after its message was redacted. Repeating a move
has no effect. Links neither add nor lift a bar (a bounce, a complaint, or one by a user of the app).

Upkeep of suppressions: remove those whose app is gone.

The request that deletes an app deletes as many of its suppressions as fit. This finds the others: the rest of very
many, and those that a callback or a recipient added at the same moment.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property, partial

from shared.accounts.rules.apps import App
from shared.core.errors import NotFound
from shared.core.instants import from_ms, ms
from shared.drivers.secrets import KeyRing
from shared.messages.rules.answers import Channel, Reason
from shared.messages.rules.jobs import MessageOptions
from shared.messages.rules.ledger import Message
from shared.messages.rules.recipients import Malformed, read_address
from shared.messages.rules.singles import SingleWish
from shared.messages.rules.suppressions import (
    EVERYTHING,
    Listing,
    SubscriptionState,
    Suppression,
    SuppressionCause,
    UnsubscribeTokens,
    listing_of,
    reason_of,
    subscription_of,
    suppress_address,
    unsubscribe_listing,
)
from shared.messages.store_ledger import EntryChange, Transact
from shared.runtime.clock import Clock
from shared.runtime.loops import Swept, repeat
from shared.store import Store

_CAUSES = {
    Reason.HARD_BOUNCE: SuppressionCause.BOUNCE,
    Reason.COMPLAINT: SuppressionCause.COMPLAINT,
    Reason.UNSUBSCRIBED: SuppressionCause.UNSUBSCRIBE,
}


async def find_barred(
    store: Store, app_id: str, options: MessageOptions | SingleWish, addresses: Sequence[str]
) -> dict[str, Reason]:
    """The addresses, in normal form, that get nothing with these options, and the reason for each."""
    found = await store.suppressions.find(app_id, options.channel, addresses, options.list)
    reasons = {
        address: reason_of([suppression], list_name=options.list, transactional=options.transactional)
        for address, suppression in found.items()
    }
    return {address: reason for address, reason in reasons.items() if reason is not None}


def bars_beside(store: Store, changes: Iterable[EntryChange], channel: Channel) -> Transact | None:
    """The write that adds the suppressions caused by these answers, in the transaction of their entries. `channel` is
    that of a job's messages; single messages have their own."""
    bars = []
    for change in changes:
        after, single = change.after, change.after.single
        if after.answered_at is not None:
            told_by = channel if single is None else single.channel
            bars.append(bar_of(change.before, after, told_by, at=after.answered_at))
    wanted = [bar for bar in bars if bar is not None]
    return partial(store.suppressions.add_in, suppressions=wanted) if wanted else None


def bar_of(
    before: Message | None, after: Message, channel: Channel, *, at: datetime, recipient: str = ""
) -> Suppression | None:
    """The suppression of all lists after a hard bounce, a complaint or an unsubscription at the provider; `None` if
    there is no such change. If a redacted message has lost its recipient, `recipient` is the provider's word."""
    if before is not None and after.reason == before.reason:
        return None
    cause = _CAUSES.get(Reason(after.reason)) if after.reason else None
    address = read_address(after.to or recipient, channel)
    if cause is None or isinstance(address, Malformed):
        return None
    return suppress_address(after.app_id, channel, address, cause=cause, at=at, message_id=after.id)


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


_STEP = 1_000


class SuppressionUpkeep:
    """Checks the apps of suppressions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> Swept:
        forgotten, app_id = 0, await self._store.suppressions.find_app()
        while app_id is not None:
            if await self._store.apps.get(app_id) is None:
                forget = partial(self._store.suppressions.remove_some_of, app_id, limit=_STEP)
                forgotten += await repeat(forget, while_full=_STEP)
            app_id = await self._store.suppressions.find_app(after=app_id)
        return Swept(discarded=forgotten)
