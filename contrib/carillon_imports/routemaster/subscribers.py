"""Importing subscriptions by the rules for their clients' own requests."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from carillon_imports.kinds import ImportedKind, Reasons, taken_meanwhile
from carillon_imports.routemaster.clients import Clients
from carillon_imports.routemaster.source import SubscriberRow
from carillon_imports.verdicts import BROUGHT, Fate, ImportVerdict
from shared.domain.bus.subscriptions import PUBLISHED_KEY, EventForm, EventSubscription, subscription_id
from shared.domain.bus.wishes import SubscriptionWish, has_to_be_made
from shared.domain.errors import Invalid, Refused
from shared.domain.plain_words import read_mistake
from shared.flow.bus.published_wishes import LONGEST_TIMEOUT_MS, read_published_wish
from shared.flow.bus.subscribing import Subscribing
from shared.outgoing.checks import check_url
from shared.runtime.settings import Settings
from shared.store import Store

_DEFINITION = ("callback", "topics", "uuid", "max_events", "timeout_ms")
_NO_UUID = ImportVerdict(Fate.BROUGHT, "has no uuid there: a receiver that asks for one refuses its deliveries")


class _Shown(Struct):
    """The fields of a subscription in Routemaster's list; older versions leave some out."""

    callback: str
    topics: list[str]
    uuid: str | None = None
    max_events: Annotated[int, Meta(ge=1)] = 100
    timeout: Annotated[int, Meta(ge=0, le=LONGEST_TIMEOUT_MS)] = 500


class ImportedSubscription(Struct, frozen=True):
    """A subscription. `id` is the digest of its client's token."""

    id: str
    namespace: str
    callback: str
    topics: tuple[str, ...]
    uuid: str
    max_events: int
    timeout_ms: int


class SubscribersKind(ImportedKind[SubscriberRow, ImportedSubscription]):
    """Imports subscriptions."""

    name = "subscribers"
    left_out = ("namespace",)

    def __init__(self, store: Store, clients: Clients, subscribing: Subscribing, settings: Settings) -> None:
        self._subscriptions = store.bus_subscriptions
        self._clients = clients
        self._subscribing = subscribing
        self._settings = settings

    def label(self, row: SubscriberRow) -> str:
        return self._clients.name_of(row.id)

    def shown_id(self, row: SubscriberRow) -> str:
        """Its place in the list, as for tokens."""
        return f"#{row.place}"

    def read(self, row: SubscriberRow) -> ImportedSubscription:
        namespace = self._clients.namespace_of(row.id)
        try:
            return _copy(row.id, self._read_wish(namespace, msgspec.convert(row.shown, _Shown)))
        except msgspec.ValidationError as error:
            raise Invalid(f"it cannot be read: {read_mistake(str(error), _Shown)[0]}") from None
        except Invalid as error:
            # A callback's path may be a secret.
            which = f"{error.field} {error.value}" if error.field == "topics" else error.field
            raise Invalid(f"{which}: {error.reason}", field=error.field) from None

    def verdict_if_new(self, value: ImportedSubscription) -> ImportVerdict:
        return BROUGHT if value.uuid else _NO_UUID

    async def here(self, ids: Sequence[str]) -> dict[str, ImportedSubscription]:
        tokens = {subscription_id(each, PUBLISHED_KEY): id for id, each in self._clients.find_namespaces(ids).items()}
        found = await self._subscriptions.with_ids(list(tokens))
        standing = [each for each in found.values() if not has_to_be_made(each)]
        return {tokens[each.id]: _copy(tokens[each.id], each) for each in standing}

    async def find_refused(self, new: Sequence[ImportedSubscription]) -> Reasons:
        most = self._settings.bus.topics_per_subscription
        return {each.id: f"it has over {most:,} topics" for each in new if len(each.topics) > most}

    async def add(self, new: Sequence[ImportedSubscription]) -> Reasons:
        reasons: Reasons = {}
        for each in new:
            if await self._subscribing.find(each.namespace, PUBLISHED_KEY) is not None:
                reasons |= taken_meanwhile([each.id])
                continue
            try:
                await self._subscribing.subscribe(_wish(each))
            except Refused as error:
                reasons[each.id] = error.reason
        return reasons

    async def replace(self, here: ImportedSubscription, there: ImportedSubscription) -> bool:
        stands = await self._subscribing.find(here.namespace, PUBLISHED_KEY)
        if stands is None or _copy(here.id, stands) != here:
            return False
        await self._subscribing.subscribe(_wish(there))
        return True

    def _read_wish(self, namespace: str, shown: _Shown) -> SubscriptionWish:
        return read_published_wish(
            namespace,
            topics=sorted(set(shown.topics)),
            callback=shown.callback,
            uuid=shown.uuid,
            timeout_ms=shown.timeout,
            max_events=shown.max_events,
            check_url=partial(check_url, allowed_networks=self._settings.callbacks.allowed_networks),
            allow_http=self._settings.bus.allow_http,
        )


def _copy(id: str, of: SubscriptionWish | EventSubscription) -> ImportedSubscription:
    fields = {name: getattr(of, name) for name in ("namespace", *_DEFINITION)}
    return msgspec.convert({"id": id, **fields}, ImportedSubscription)


def _wish(subscription: ImportedSubscription) -> SubscriptionWish:
    return SubscriptionWish(
        namespace=subscription.namespace,
        key=PUBLISHED_KEY,
        form=EventForm.PUBLISHED,
        **{name: getattr(subscription, name) for name in _DEFINITION},
    )
