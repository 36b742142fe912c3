"""Subscribing: each change is one transaction, which raises the registry's version.

subscribe ──> subscription, missing topics, wake-up and cursor of a new queue
pause     ──> the queue goes on collecting; the receiver is not called
suspend   ──> the queue collects nothing; the receiver is not called
resume    ──> the wake-up comes due: a worker looks at the queue
remove    ──> the remains go later; a new subscription of this key has another queue

Secrets of subscriptions sign deliveries. They are stored sealed and shown once. `read_published_wish` has the rules
for the fields of Routemaster's API.
"""

import base64
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import unquote

from msgspec import UNSET, Struct
from msgspec.structs import replace

from shared.accounts.rules.secrets import PREFIX
from shared.bus.rules.events import check_published_name
from shared.bus.rules.subscriptions import (
    LONGEST_TIMEOUT,
    MOST_EVENTS,
    PUBLISHED_KEY,
    SUBSCRIPTION_TRANSITIONS,
    EventForm,
    EventSubscription,
    FormerChoice,
    SubscriptionSecret,
    SubscriptionStatus,
    SubscriptionWish,
    grant_wish,
    has_to_be_made,
    make_subscription,
    subscription_id,
    subscription_of,
    topics_chosen_anew,
)
from shared.bus.store_subscriptions import SubscriptionWrite
from shared.bus.topics import ReadEnds
from shared.core.documents import sources
from shared.core.errors import Conflict, Forbidden, Invalid, NotFound, Unavailable
from shared.drivers.http.checks import CheckUrl
from shared.drivers.mongo.documents import Page
from shared.drivers.secrets import KeyRing
from shared.runtime.faults import fault
from shared.store import Store

MOST_SECRETS = 5
"""The most secrets that sign at the same time. A delivery has a signature by each."""
_KEY_BYTES = 32
_FIELD = "secret"


def seal_secret(ring: KeyRing, subscription_id: str) -> tuple[SubscriptionSecret, str]:
    """A new secret, sealed and as text. Raises `Invalid` if the deployment has no key."""
    text = PREFIX + base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
    return SubscriptionSecret(sealed=ring.seal({_FIELD: text}, _owner(subscription_id))), text


def open_secrets(ring: KeyRing, subscription: EventSubscription, now: datetime) -> tuple[str, ...]:
    """The secrets that sign now, newest first. Raises `Conflict` if the ring lacks a key."""
    signing = [secret for secret in subscription.secrets if secret.until is None or now < secret.until]
    return tuple(ring.open(secret.sealed, _owner(subscription.id))[_FIELD] for secret in reversed(signing))


def rotate_secrets(
    stands: tuple[SubscriptionSecret, ...], new: SubscriptionSecret, now: datetime, keep: timedelta
) -> tuple[SubscriptionSecret, ...]:
    """Add a new secret. Older secrets sign for `keep` more, but no longer than before: the receiver may have any of
    them, because a caller may rotate again after a lost answer. Raises `Conflict` if too many sign."""
    ends = now + keep
    kept = [replace(secret, until=min(secret.until or ends, ends)) for secret in stands]
    signing = [secret for secret in kept if secret.until is not None and now < secret.until]
    if len(signing) >= MOST_SECRETS:
        rule = f"at most {MOST_SECRETS} older secrets may sign: wait until one ends, or end them by `keep_hours` 0"
        raise Conflict(rule, field="keep_hours")
    return (*signing, new)


def _owner(subscription_id: str) -> str:
    return f"bus/{subscription_id}"


UUID_CHARACTERS = 255
LONGEST_TIMEOUT_MS = int(LONGEST_TIMEOUT.total_seconds() * 1e3)
_USER = re.compile(r"(?P<scheme>[A-Za-z]+://)(?P<user>[^/?#]*)@(?P<rest>.*)", re.DOTALL)
_UUID = re.compile(rf"[ -~]{{0,{UUID_CHARACTERS}}}")


def read_published_wish(
    namespace: str,
    *,
    topics: Sequence[str],
    callback: str,
    uuid: str | None,
    timeout_ms: int | None,
    max_events: int | None,
    check_url: CheckUrl,
    allow_http: bool,
) -> SubscriptionWish:
    """Check a client's subscription of Routemaster's API. A user in the callback replaces a missing `uuid`.
    `timeout_ms` and `max_events` were checked before; `None` leaves them unchanged."""
    for name in topics:
        check_published_name(name, field="topics")
    url, user = split_callback(callback)
    schemes = ("https://", "http://") if allow_http else ("https://",)
    if not url.lower().startswith(schemes) or "?" in url:
        rule = f"must be an https{' or http' if allow_http else ''} URL without a query"
        raise Invalid(rule, field="callback", value=url)
    check_url(url, field="callback")
    return SubscriptionWish(
        namespace=namespace,
        key=PUBLISHED_KEY,
        form=EventForm.PUBLISHED,
        callback=url,
        topics=tuple(topics),
        uuid=_check_uuid(uuid or user),
        timeout_ms=UNSET if timeout_ms is None else timeout_ms,
        max_events=UNSET if max_events is None else min(max_events, MOST_EVENTS),
    )


def split_callback(callback: str) -> tuple[str, str]:
    """Split a callback into its URL and the user in it, as `rtm sub add` sends it."""
    parts = _USER.fullmatch(callback)
    if parts is None:
        return callback, ""
    return parts["scheme"] + parts["rest"], unquote(parts["user"].partition(":")[0])


def _check_uuid(uuid: str) -> str:
    if _UUID.fullmatch(uuid) is None:
        raise Invalid(f"at most {UUID_CHARACTERS} printable characters of ASCII", field="uuid")
    return uuid


_TRIES = 10
_GENERATION_BYTES = 8
_PAGE = 500
_MOST_FORMER = 50_000  # topics: a document has room for some megabytes of names
_POINTS: Final[Mapping[SubscriptionStatus, str]] = {
    SubscriptionStatus.SUSPENDED: "bus.after_suspend",
    SubscriptionStatus.ACTIVE: "bus.after_resume",
    SubscriptionStatus.REMOVED: "bus.after_remove",
}
Decide = Callable[[EventSubscription | None, datetime], Awaitable[EventSubscription]]
"""Returns the wanted subscription, given the stored one and the time."""


class SubscriptionQuotas(Struct, frozen=True):
    """Limits: subscriptions of a namespace, topics of a subscription, and topics of a namespace's subscriptions
    together. Fan-outs hold them all in memory."""

    per_namespace: int
    topics: int
    topics_together: int = 10_000


class MadeSubscription(Struct, frozen=True):
    """A subscription after a change. `secret` is set if it is new, and is never shown again."""

    subscription: EventSubscription
    secret: str = ""


class Subscribing:
    """Changes subscriptions. `now` returns the database's time, `ends` the ends of the log: events that were accepted
    before a change still arrive. After `Unavailable` a change may have been made; repeating it is safe."""

    def __init__(
        self,
        store: Store,
        ring: KeyRing,
        now: Callable[[], Awaitable[datetime]],
        quotas: SubscriptionQuotas,
        ends: ReadEnds,
    ) -> None:
        self._store = store
        self._ring = ring
        self._now = now
        self._quotas = quotas
        self._ends = ends

    async def find(self, namespace: str, key: str) -> EventSubscription | None:
        found = await self._store.bus_subscriptions.get(subscription_id(namespace, key))
        return None if has_to_be_made(found) else found

    async def get(self, namespace: str, key: str) -> EventSubscription:
        if (found := await self.find(namespace, key)) is None:
            raise _no_subscription(namespace, key)
        return found

    async def page_published(self, *, after: str = "", limit: int) -> Page[EventSubscription]:
        """Subscriptions of Routemaster's API after this id, without filters and headers."""
        return await self._store.bus_subscriptions.page_published(after=after, limit=limit)

    async def page(self, *, namespace: str, after: str = "", limit: int) -> Page[EventSubscription]:
        return await self._store.bus_subscriptions.page_of(namespace, after=after, limit=limit)

    async def subscribe(self, wish: SubscriptionWish) -> MadeSubscription:
        """Make or change a subscription. Missing topics are made, without an owner.

        Raises:
            Invalid: a new subscription has no callback.
            Forbidden: the namespace has too many subscriptions, or this one would have too many topics.
        """
        shown = ""

        async def decide(stands: EventSubscription | None, now: datetime) -> EventSubscription:
            nonlocal shown
            shown = ""
            if stands is not None and not has_to_be_made(stands):
                return await self._check_topics(grant_wish(wish, stands), stands)
            await self._check_quota(wish.namespace)
            made = make_subscription(wish, generation=secrets.token_hex(_GENERATION_BYTES), now=now)
            if self._ring.can_seal:
                secret, shown = seal_secret(self._ring, made.id)
                made = replace(made, secrets=(secret,))
            return await self._check_topics(made)

        subscription = await self._change(wish.namespace, wish.key, decide)
        return MadeSubscription(subscription, shown)

    async def leave_topic(self, namespace: str, key: str, topic: str) -> None:
        async def decide(stands: EventSubscription | None, _: datetime) -> EventSubscription:
            stands = _present(stands, namespace, key)
            if topic not in stands.topics:
                raise NotFound(f"the subscription has no topic {topic}", field="topic", value=topic)
            return replace(stands, topics=tuple(name for name in stands.topics if name != topic))

        await self._change(namespace, key, decide)

    async def unsubscribe(self, namespace: str, key: str) -> None:
        await self._move(namespace, key, SubscriptionStatus.REMOVED)

    async def pause(self, namespace: str, key: str, *, reason: str = "") -> EventSubscription:
        """Stop calling the receiver; its queue goes on collecting. Raises `Conflict` for a suspended subscription."""
        return await self._move(namespace, key, SubscriptionStatus.PAUSED, reason=reason)

    async def resume(self, namespace: str, key: str) -> EventSubscription:
        return await self._move(namespace, key, SubscriptionStatus.ACTIVE)

    async def suspend(self, queue: str, reason: str, *, callback: str = "") -> EventSubscription | None:
        """Stop calling the receiver of this queue, and collect nothing for it. `None` if the queue has been replaced,
        the subscription is not active, or its callback is not `callback`: failures of an old callback do not count
        against the new one."""

        def is_meant(stands: EventSubscription) -> bool:
            return stands.queue == queue and callback in ("", stands.callback)

        stands = await self._store.bus_subscriptions.get(subscription_of(queue))
        if stands is None:
            return None
        try:
            return await self._move(
                stands.namespace, stands.key, SubscriptionStatus.SUSPENDED, reason=reason, is_meant=is_meant
            )
        except (NotFound, Conflict):
            return None

    async def pause_namespace(self, namespace: str, reason: str) -> int:
        after, paused = "", 0
        while page := await self.page(namespace=namespace, after=after, limit=_PAGE):
            active = [found.key for found in page if found.state is SubscriptionStatus.ACTIVE]
            for key in active:
                await self.pause(namespace, key, reason=reason)
            paused, after = paused + len(active), page[-1].key
        return paused

    async def rotate_secret(self, namespace: str, key: str, *, keep: timedelta) -> MadeSubscription:
        """Add a new secret; older ones sign beside it for `keep`. Raises `Invalid` if the deployment has no key, and
        `Conflict` if too many secrets sign."""
        secret, shown = seal_secret(self._ring, subscription_id(namespace, key))

        async def decide(stands: EventSubscription | None, now: datetime) -> EventSubscription:
            stands = _present(stands, namespace, key)
            return replace(stands, secrets=rotate_secrets(stands.secrets, secret, now, keep))

        return MadeSubscription(await self._change(namespace, key, decide), shown)

    async def _move(
        self,
        namespace: str,
        key: str,
        to: SubscriptionStatus,
        *,
        reason: str = "",
        is_meant: Callable[[EventSubscription], bool] = lambda _: True,
    ) -> EventSubscription:
        async def decide(stands: EventSubscription | None, _: datetime) -> EventSubscription:
            stands = _present(stands, namespace, key)
            if not is_meant(stands):
                raise _no_subscription(namespace, key)
            if stands.state is to:
                return stands
            if stands.state not in sources(SUBSCRIPTION_TRANSITIONS, to):
                raise Conflict(f"the subscription is {stands.state}", field="state", value=stands.state)
            return replace(stands, state=to, reason=reason)

        moved = await self._change(namespace, key, decide)
        if point := _POINTS.get(to):
            await fault(point)
        return moved

    async def _change(self, namespace: str, key: str, decide: Decide) -> EventSubscription:
        """Store what `decide` returns. Decide again if another request was faster or took the last place of a quota;
        write nothing if nothing changes."""
        id = subscription_id(namespace, key)
        for _ in range(_TRIES):
            stands, now = await self._store.bus_subscriptions.get(id), await self._now()
            wanted = await decide(stands, now)
            if wanted == stands:
                return wanted
            if stands is not None and (topics := topics_chosen_anew(stands, wanted)):
                former = FormerChoice(topics=topics, filter=stands.filter, ends=await self._ends())
                wanted = replace(wanted, former=_with_former(stands, former))
            write = SubscriptionWrite(stands, wanted, self._quotas.per_namespace, self._quotas.topics_together)
            written = await self._store.bus_subscriptions.write(write, now=now)
            if written is not None:
                return written
        raise Unavailable(f"the subscription {key} changes all the time")

    async def _check_topics(
        self, subscription: EventSubscription, before: EventSubscription | None = None
    ) -> EventSubscription:
        count, quotas = len(subscription.topics), self._quotas
        if count > quotas.topics:
            raise Forbidden(f"a subscription has at most {quotas.topics:,} topics", field="topics")
        if count > (0 if before is None else len(before.topics)):
            others = await self._store.bus_subscriptions.count_topics(subscription.namespace, but=subscription.id)
            if others + count > quotas.topics_together:
                rule = f"a namespace's subscriptions have at most {quotas.topics_together:,} topics together"
                raise Forbidden(rule, field="topics")
        return subscription

    async def _check_quota(self, namespace: str) -> None:
        if await self._store.bus_subscriptions.count_of(namespace) >= self._quotas.per_namespace:
            raise Forbidden(f"a namespace has at most {self._quotas.per_namespace:,} subscriptions", field="key")


def _with_former(stands: EventSubscription, former: FormerChoice) -> tuple[FormerChoice, ...]:
    """The former choices with this one. Raises `Unavailable` if there are too many, because fan-outs are behind."""
    every = (*stands.former, former)
    if sum(len(each.topics) for each in every) > _MOST_FORMER:
        raise Unavailable("the fan-outs have not read the log since the last changes of this subscription")
    return every


def _present(stands: EventSubscription | None, namespace: str, key: str) -> EventSubscription:
    if stands is None or has_to_be_made(stands):
        raise _no_subscription(namespace, key)
    return stands


def _no_subscription(namespace: str, key: str) -> NotFound:
    return NotFound(f"there is no subscription {key} of {namespace}", field="key", value=key)
