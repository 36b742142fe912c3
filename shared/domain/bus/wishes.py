"""Wishes: a request for a subscription. A missing field keeps its value, or has its default in a new one."""

from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from shared.domain.bus.filters import EventFilter
from shared.domain.bus.subscriptions import EventForm, EventSubscription, SubscriptionStatus, subscription_id
from shared.domain.errors import Invalid
from shared.domain.idempotency import canonical_json


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
    """Whether a wish makes a new subscription, with a queue of its own."""
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
