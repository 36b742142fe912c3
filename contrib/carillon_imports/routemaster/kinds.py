"""Clients, topics and subscribers of Routemaster, as Carillon stores them."""

import secrets
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from carillon_imports.carry import ImportedKind, Reasons, taken_meanwhile
from carillon_imports.report import BROUGHT, Fate, ImportVerdict
from carillon_imports.routemaster.source import SubscriberRow, TokenRow, TopicRow
from shared.accounts.rules.callers import Token, TokenScope, check_token_name, token_namespace
from shared.accounts.rules.secrets import check_bus_secret
from shared.bus.rules.events import check_published_name, is_own
from shared.bus.rules.subscriptions import (
    PUBLISHED_KEY,
    EventForm,
    EventSubscription,
    SubscriptionWish,
    has_to_be_made,
    subscription_id,
)
from shared.bus.subscriptions import LONGEST_TIMEOUT_MS, Subscribing, read_published_wish
from shared.bus.topics import TopicFlow
from shared.core.errors import Conflict, Forbidden, Invalid, Refused
from shared.core.ids import time_ordered_id
from shared.core.plain_words import read_mistake
from shared.drivers.http.checks import check_url
from shared.runtime.clock import Clock
from shared.runtime.settings import Settings
from shared.store import Store

MADE_BY = "carillon import"


class ImportedToken(Struct, frozen=True):
    """A token. `id` is the digest of its secret; its `namespace` owns its topics and its subscription."""

    id: str
    name: str
    namespace: str


class Clients:
    """The clients that exist here, or would after a dry run: things of other clients cannot be imported."""

    def __init__(self) -> None:
        self._tokens: dict[str, ImportedToken] = {}

    def add(self, token: ImportedToken) -> None:
        self._tokens.setdefault(token.id, token)

    def namespace_of(self, token: str) -> str:
        """The namespace of the token with this digest. Raises `Conflict` if it does not exist here."""
        if (found := self._tokens.get(token)) is None:
            raise Conflict("its token is gone there, was not brought, or was deleted here")
        return found.namespace

    def find_namespaces(self, tokens: Iterable[str]) -> dict[str, str]:
        return {each: self._tokens[each].namespace for each in tokens if each in self._tokens}

    def name_of(self, token: str) -> str:
        found = self._tokens.get(token)
        return "(none)" if found is None else found.name


class TokensKind(ImportedKind[TokenRow, ImportedToken]):
    name = "tokens"
    left_out = ("namespace",)

    def __init__(self, store: Store, clients: Clients, clock: Clock) -> None:
        self._tokens = store.tokens
        self._clients = clients
        self._clock = clock

    def label(self, row: TokenRow) -> str:
        return row.name

    def shown_id(self, row: TokenRow) -> str:
        """Its place in the list: a report must contain neither a secret nor the digest of a possible word."""
        return f"#{row.place}"

    def read(self, row: TokenRow) -> ImportedToken:
        check_bus_secret(row.secret, field="token")
        check_token_name(row.name)
        fresh = time_ordered_id(self._clock.now_ns(), secrets.randbits(62))
        return ImportedToken(row.id, row.name, token_namespace(fresh))

    async def here(self, ids: Sequence[str]) -> dict[str, ImportedToken]:
        found = await self._tokens.with_digests(ids)
        return {id: ImportedToken(id, token.name, token.owns) for id, token in found.items()}

    async def add(self, new: Sequence[ImportedToken]) -> Reasons:
        taken = []
        for token in new:
            try:
                await self._tokens.add(self._make(token))
            except Conflict:
                taken.append(token.id)
        return taken_meanwhile(taken)

    async def replace(self, here: ImportedToken, there: ImportedToken) -> bool:
        raise Conflict(f"has another name there: a token keeps the one that it was made with, here {here.name}")

    def remember(self, present: Iterable[ImportedToken]) -> None:
        for token in present:
            self._clients.add(token)

    def _make(self, token: ImportedToken) -> Token:
        return Token(
            id=token.namespace.removeprefix(token_namespace("")),
            name=token.name,
            digest=token.id,
            scope=TokenScope.BUS,
            created_by=MADE_BY,
            created_at=self._clock.now_ns(),
        )


class TopicOwner(Struct, frozen=True):
    """A topic, whose name is `id`, and the namespace that may publish on it."""

    id: str
    owner: str


class TopicsKind(ImportedKind[TopicRow, TopicOwner]):
    """Imports topics. A namespace owns at most `most` of them."""

    name = "topics"

    def __init__(self, store: Store, clients: Clients, topics: TopicFlow, *, most: int) -> None:
        self._store = store
        self._clients = clients
        self._topics = topics
        self._most = most
        self._room: dict[str, int] = {}

    def label(self, row: TopicRow) -> str:
        return row.id

    def shown_id(self, row: TopicRow) -> str:
        """Its owner, because the label is its name."""
        return f"of {self._clients.name_of(row.publisher)}"

    def read(self, row: TopicRow) -> TopicOwner:
        check_published_name(row.id, field="name")
        if is_own(row.id):
            raise Conflict("Carillon alone publishes on it here")
        return TopicOwner(row.id, self._clients.namespace_of(row.publisher))

    async def here(self, ids: Sequence[str]) -> dict[str, TopicOwner]:
        found = await self._store.bus_topics.with_names(ids)
        return {name: TopicOwner(name, topic.owner) for name, topic in found.items() if topic.owner}

    async def find_refused(self, new: Sequence[TopicOwner]) -> Reasons:
        reason = f"its publisher owns {self._most:,} topics here"
        return {topic.id: reason for topic in new if await self._is_full(topic)}

    async def add(self, new: Sequence[TopicOwner]) -> Reasons:
        reasons: Reasons = {}
        for topic in new:
            try:
                await self._topics.claim(topic.id, topic.owner)
            except Forbidden as error:
                reasons[topic.id] = error.reason
        return reasons

    async def replace(self, here: TopicOwner, there: TopicOwner) -> bool:
        stands = await self._store.bus_topics.get(here.id)
        if stands is None or stands.owner != here.owner or stands.private:
            return False
        now = await self._store.now()
        return await self._store.bus_topics.replace(stands, replace(stands, owner=there.owner), now=now)

    async def _is_full(self, topic: TopicOwner) -> bool:
        """Whether the owner has its most topics, including the earlier ones of this import."""
        if topic.owner not in self._room:
            self._room[topic.owner] = self._most - await self._store.bus_topics.count_owned(topic.owner)
        self._room[topic.owner] -= 1
        return self._room[topic.owner] < 0


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
