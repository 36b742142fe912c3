"""Deliveries of the bus as the API shows them."""

from msgspec import Raw, Struct
from msgspec.structs import asdict

from services.api.bus.native.attempt_view import BusAttemptView, attempt_view
from services.api.http.wire import Timestamp
from shared.domain.bus.deliveries import DeliveryStatus, EventDelivery
from shared.domain.instants import format_instant, format_maybe


class BusDeliveryView(Struct, frozen=True, kw_only=True):
    """One batch of `count` events for the subscription with this key, the first of which arrived at `first_at`; it was
    cut at `cut_at`. While it is open it is tried again at `retry_at` at the earliest. The first three and the
    last three of the `made` attempts are shown; `failures` of them failed while other deliveries succeeded."""

    id: str
    key: str
    sequence: int
    status: DeliveryStatus
    count: int
    bytes: int
    first_at: Timestamp
    cut_at: Timestamp
    retry_at: Timestamp | None
    settled_at: Timestamp | None
    made: int
    failures: int
    attempts: list[BusAttemptView]
    redacted: bool = False


class WholeBusDeliveryView(BusDeliveryView, frozen=True, kw_only=True):
    """A delivery with its events, as their receiver gets them: none unless they are asked for, and none for whoever may
    not see personal data."""

    events: list[Raw]


def delivery_view(delivery: EventDelivery, key: str, *, personal: bool) -> BusDeliveryView:
    """A delivery as it is shown, without personal data unless `personal`: a receiver may answer with what it got."""
    return BusDeliveryView(
        id=delivery.id,
        key=key,
        sequence=delivery.sequence,
        status=delivery.status,
        count=delivery.count,
        bytes=delivery.size,
        first_at=format_instant(delivery.first_at),
        cut_at=format_instant(delivery.cut_at),
        retry_at=format_maybe(delivery.retry_at),
        settled_at=format_maybe(delivery.settled_at),
        made=delivery.made,
        failures=delivery.failures,
        attempts=[attempt_view(each, personal=personal) for each in delivery.attempts],
        redacted=not personal,
    )


def whole_delivery_view(
    delivery: EventDelivery, key: str, events: tuple[bytes, ...], *, personal: bool
) -> WholeBusDeliveryView:
    """A delivery and those of its events that are told."""
    shown = asdict(delivery_view(delivery, key, personal=personal))
    return WholeBusDeliveryView(**shown, events=[Raw(event) for event in events])
