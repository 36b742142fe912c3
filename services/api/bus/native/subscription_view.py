"""Subscriptions of the bus as its own API shows them. Instants are RFC 3339 in UTC."""

from datetime import datetime

import msgspec
from msgspec import UNSET, Struct, UnsetType

from services.api.bus.native.subscription_body import ConditionBody, FilterBody
from services.api.http.wire import Timestamp, hide_path
from shared.domain.bus.filters import EventFilter
from shared.domain.bus.subscriptions import EventSubscription, SubscriptionStatus
from shared.domain.instants import format_instant, format_maybe

HIDDEN = "…"


class EventSubscriptionView(Struct, frozen=True, kw_only=True):
    """A subscription. `secret` is shown when it is made or rotated, and never again. `redacted` says that the values of
    `headers`, the path of `callback`, `uuid` and `contact` are left out: the caller is a viewer. `reason` says why it
    is not active. `id` names it in metrics. `failing_since`, in the answers to GET, is when the receiver's calls
    began to fail, `null` if the last one succeeded."""

    id: str
    key: str
    callback: str
    topics: tuple[str, ...]
    filter: FilterBody
    max_events: int
    max_bytes: int
    timeout_ms: int
    ordered: bool
    in_flight: int
    max_attempts: int
    max_age_hours: int
    headers: dict[str, str]
    uuid: str
    contact: str
    state: SubscriptionStatus
    reason: str
    created_at: Timestamp
    updated_at: Timestamp
    secret: str | UnsetType = UNSET
    redacted: bool = False
    failing_since: Timestamp | UnsetType | None = UNSET


def subscription_view(
    subscription: EventSubscription,
    *,
    secret: str = "",
    personal: bool = True,
    failing_since: datetime | UnsetType | None = UNSET,
) -> EventSubscriptionView:
    """The subscription as it is shown, without personal data unless `personal`."""
    return EventSubscriptionView(
        id=subscription.id,
        key=subscription.key,
        callback=subscription.callback if personal else hide_path(subscription.callback),
        topics=subscription.topics,
        filter=show_filter(subscription.filter),
        max_events=subscription.max_events,
        max_bytes=subscription.max_bytes,
        timeout_ms=subscription.timeout_ms,
        ordered=subscription.ordered,
        in_flight=subscription.in_flight,
        max_attempts=subscription.max_attempts,
        max_age_hours=subscription.max_age_hours,
        headers=subscription.headers if personal else dict.fromkeys(subscription.headers, HIDDEN),
        uuid=subscription.uuid if personal else "",
        contact=subscription.contact if personal else "",
        state=subscription.state,
        reason=subscription.reason,
        created_at=format_instant(subscription.created_at),
        updated_at=format_instant(subscription.updated_at),
        secret=secret or UNSET,
        redacted=not personal,
        failing_since=UNSET if isinstance(failing_since, UnsetType) else format_maybe(failing_since),
    )


def show_filter(wanted: EventFilter) -> FilterBody:
    """A filter as a body names it."""
    conditions = tuple(ConditionBody(each.path, each.op, msgspec.json.decode(each.value)) for each in wanted.data)
    return FilterBody(wanted.types, wanted.url_prefix, conditions)
