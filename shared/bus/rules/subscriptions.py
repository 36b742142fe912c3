"""Subscriptions: a namespace's choice of events, with their receiver and portions; and the requests for them.

    active <──> paused
    active ───> suspended ──> active         (removed can follow each of them; a removed one can be made again)

A subscription belongs to a namespace, in which its `key` is unique. Each time it is made it has a fresh
`generation`. Its waiting events are its **queue**, which is named by both: a subscription that is made again begins
with an empty queue, even if a late process stores events for the old one.

A request is a *wish*: a missing field keeps its value, or has its default in a new subscription.
"""

import hashlib
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from shared.bus.rules.filters import EventFilter
from shared.core.documents import LogEnds
from shared.core.errors import Invalid
from shared.core.ids import canonical_json

PUBLISHED_KEY = "routemaster"
"""The key of the one subscription of a client of Routemaster's API."""
MOST_EVENTS = 10_000
MOST_BYTES = 2**20
LONGEST_TIMEOUT = timedelta(hours=1)
MOST_IN_FLIGHT = 32
OPEN_DELIVERIES = 100
"""Maximum open deliveries of a subscription; an ordered one has one."""


class SubscriptionStatus(StrEnum):
    """The state of a subscription."""

    ACTIVE = "active"
    PAUSED = "paused"  # by its owner: it goes on collecting, and its receiver is not called
    SUSPENDED = "suspended"  # by Carillon, because its receiver fails: it collects nothing
    REMOVED = "removed"  # kept for an hour, so that late processes find it


SUBSCRIPTION_TRANSITIONS: dict[SubscriptionStatus, frozenset[SubscriptionStatus]] = {
    SubscriptionStatus.ACTIVE: frozenset(
        {SubscriptionStatus.PAUSED, SubscriptionStatus.SUSPENDED, SubscriptionStatus.REMOVED}
    ),
    SubscriptionStatus.PAUSED: frozenset({SubscriptionStatus.ACTIVE, SubscriptionStatus.REMOVED}),
    SubscriptionStatus.SUSPENDED: frozenset({SubscriptionStatus.ACTIVE, SubscriptionStatus.REMOVED}),
    SubscriptionStatus.REMOVED: frozenset({SubscriptionStatus.ACTIVE}),
}
COLLECTING = frozenset({SubscriptionStatus.ACTIVE, SubscriptionStatus.PAUSED})
"""The states in which events go into the queue."""


class EventForm(StrEnum):
    PUBLISHED = "routemaster"  # {topic, type, url, t, data?}
    NATIVE = "native"  # these, and {id, at}


class SubscriptionSecret(Struct, frozen=True, kw_only=True):
    """A sealed secret that signs deliveries (`shared.drivers.secrets`). A replaced one also signs, until `until`."""

    sealed: str
    until: datetime | None = None


class FormerChoice(Struct, frozen=True, kw_only=True):
    """The events of these topics that a subscription wanted before a moment: those that `filter` accepts, or none if it
    is `None`. It holds for events that the log had then, at `ends`."""

    topics: tuple[str, ...]
    filter: EventFilter | None
    ends: LogEnds


class EventSubscription(Struct, frozen=True, kw_only=True):
    """A subscription. Times are UTC, by the database's clock.

    A delivery is cut when `max_events` wait, or when the first has waited for `timeout_ms`; it has at most `max_bytes`.
    `in_flight` deliveries are called at a time; of an `ordered` one, one. A delivery that failed `max_attempts` times
    while others succeeded, or that is older than `max_age_hours`, becomes a dead letter. `uuid` is the user of
    Routemaster's basic auth. `contact` gets mails about it. `version` is that of the registry at its last change,
    unique to it. `former` has its choices before its last changes, the oldest first: for an event counts the first one
    that names its topic and ends after it.
    """

    id: str
    namespace: str
    key: str
    generation: str
    form: EventForm = EventForm.NATIVE
    callback: str
    topics: tuple[str, ...] = ()
    filter: EventFilter = EventFilter()
    former: tuple[FormerChoice, ...] = ()
    max_events: int = 100
    max_bytes: int = MOST_BYTES
    timeout_ms: int = 500
    ordered: bool = False
    in_flight: int = 8
    max_attempts: int = 20
    max_age_hours: int = 72
    headers: dict[str, str] = {}
    uuid: str = ""
    contact: str = ""
    secrets: tuple[SubscriptionSecret, ...] = ()
    state: SubscriptionStatus = SubscriptionStatus.ACTIVE
    reason: str = ""
    version: int = 0
    created_at: datetime
    updated_at: datetime

    @property
    def queue(self) -> str:
        return queue_of(self.id, self.generation)

    @property
    def timeout(self) -> timedelta:
        return timedelta(milliseconds=self.timeout_ms)

    @property
    def collects(self) -> bool:
        return self.state in COLLECTING

    @property
    def is_called(self) -> bool:
        return self.state is SubscriptionStatus.ACTIVE

    @property
    def most_open(self) -> int:
        return 1 if self.ordered else OPEN_DELIVERIES


def share_topics(subscription: EventSubscription, names: dict[str, str]) -> EventSubscription:
    """The same subscription with topic names interned in `names`, so that a million equal names use the memory of
    one."""
    return replace(subscription, topics=tuple(names.setdefault(name, name) for name in subscription.topics))


def subscription_id(namespace: str, key: str) -> str:
    return hashlib.blake2b(f"{namespace}\0{key}".encode(), digest_size=16).hexdigest()


def queue_of(subscription_id: str, generation: str) -> str:
    return f"{subscription_id}.{generation}"


def subscription_of(queue: str) -> str:
    return queue.partition(".")[0]


def generation_of(queue: str) -> str:
    return queue.partition(".")[2]


class SubscriptionWish(Struct, frozen=True, kw_only=True):
    """The wish for the subscription with this key in this namespace. Its fields have passed their checks."""

    namespace: str
    key: str
    form: EventForm = EventForm.NATIVE
    callback: str | UnsetType = UNSET
    topics: tuple[str, ...] | UnsetType = UNSET
    filter: EventFilter | UnsetType = UNSET
    max_events: int | UnsetType = UNSET
    max_bytes: int | UnsetType = UNSET
    timeout_ms: int | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    max_age_hours: int | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    contact: str | UnsetType = UNSET


def has_to_be_made(stands: EventSubscription | None) -> bool:
    return stands is None or stands.state is SubscriptionStatus.REMOVED


def make_subscription(wish: SubscriptionWish, *, generation: str, now: datetime) -> EventSubscription:
    if not wish.callback:
        raise Invalid("the field 'callback' is needed", field="callback")
    id = subscription_id(wish.namespace, wish.key)
    return EventSubscription(id=id, generation=generation, created_at=now, updated_at=now, **_fields_of(wish))


def grant_wish(wish: SubscriptionWish, stands: EventSubscription) -> EventSubscription:
    fields = _fields_of(wish)
    if "filter" in fields and _read(fields["filter"]) == _read(stands.filter):
        del fields["filter"]  # the stored text stays
    wanted = replace(stands, **fields)
    return stands if wanted == stands else wanted


def topics_chosen_anew(before: EventSubscription | None, after: EventSubscription) -> tuple[str, ...]:
    """The topics of which the subscription no longer wants the same events. A removed or new one has none."""
    if has_to_be_made(before) or before is None or has_to_be_made(after):
        return ()
    if before.filter != after.filter:
        return before.topics
    return tuple(sorted(set(before.topics) - set(after.topics)))


def is_to_be_looked_at(before: EventSubscription, after: EventSubscription) -> bool:
    hastened = after.max_events < before.max_events or after.timeout_ms < before.timeout_ms
    is_new_call = hastened or before.state is not after.state or calls_another(before, after)
    return after.state is SubscriptionStatus.ACTIVE and is_new_call


def restarts_failing_time(before: EventSubscription, after: EventSubscription) -> bool:
    """Whether the time of failures restarts, because its receiver was not called meanwhile."""
    return after.state is SubscriptionStatus.ACTIVE and before.state is not after.state


def calls_another(before: EventSubscription, after: EventSubscription) -> bool:
    """Whether another receiver is called, to which earlier failures and wishes do not apply."""
    return before.callback != after.callback


def _read(filter: EventFilter) -> tuple[Any, ...]:
    values = tuple((each.path, each.op, canonical_json(each.value.encode())) for each in filter.data)
    return filter.types, filter.url_prefix, values


def _fields_of(wish: SubscriptionWish) -> dict[str, Any]:
    """The fields of the wish. Topics have no order and no repeats."""
    said = {name: value for name, value in asdict(wish).items() if value is not UNSET}
    if "topics" in said:
        said["topics"] = tuple(sorted(set(said["topics"])))
    return said
