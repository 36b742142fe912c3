"""Calls of receivers as the API shows them."""

from msgspec import Struct

from services.api.http.wire import Timestamp, hide
from shared.domain.bus.deliveries import DeliveryAttempt
from shared.domain.instants import format_instant


class BusAttemptView(Struct, frozen=True, kw_only=True):
    """One call of a receiver, which took so many `ms`: the `status` of its answer, or 0 and the `error`; `excerpt` is
    the beginning of the answer's body."""

    at: Timestamp
    ms: int
    status: int
    error: str
    excerpt: str


def attempt_view(attempt: DeliveryAttempt, *, personal: bool) -> BusAttemptView:
    """An attempt as it is shown."""
    return BusAttemptView(
        at=format_instant(attempt.at),
        ms=attempt.ms,
        status=attempt.status,
        error=attempt.error,
        excerpt=attempt.excerpt if personal else hide(attempt.excerpt),
    )
