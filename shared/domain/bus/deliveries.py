"""Deliveries: one batch of events for one receiver, with one body and one id on every attempt.

    open ──> delivered
    open <─> dead         a dead letter: it failed too often, or for too long; a retry opens it again
    open ──> discarded    its subscription was removed

A due delivery is cut from the chunks of a queue. Its `sequence` counts the deliveries of that queue from 1 on, without
a gap, and its id follows from both: a repeated cut finds it stored.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from shared.domain.errors import Invalid
from shared.domain.instants import read_instant
from shared.domain.transitions import sources

MOST_SEQUENCE = 2**53
"""More than a queue ever has; any number up to it is exact in JSON."""


class DeliveryStatus(StrEnum):
    """The state of a delivery."""

    OPEN = "open"
    DELIVERED = "delivered"
    DEAD = "dead"
    DISCARDED = "discarded"


DELIVERY_TRANSITIONS: dict[DeliveryStatus, frozenset[DeliveryStatus]] = {
    DeliveryStatus.OPEN: frozenset({DeliveryStatus.DELIVERED, DeliveryStatus.DEAD, DeliveryStatus.DISCARDED}),
    DeliveryStatus.DELIVERED: frozenset(),
    DeliveryStatus.DEAD: frozenset({DeliveryStatus.OPEN}),
    DeliveryStatus.DISCARDED: frozenset(),
}

REOPENABLE = sources(DELIVERY_TRANSITIONS, DeliveryStatus.OPEN)


class DeliveryAttempt(Struct, frozen=True):
    """One call of a receiver. `status` is that of HTTP, 0 without an answer; `error` is the reason then. `excerpt` is
    the beginning of the answer's body, on one line."""

    at: datetime
    ms: int
    status: int = 0
    error: str = ""
    excerpt: str = ""


class EventDelivery(Struct, frozen=True, kw_only=True):
    """One batch. `events` are in the receiver's form. A settled delivery has no events, but still their `count`, `size`
    in bytes and `digest`. `offsets` are their places in the log: `(partition, offset)` each. `first_at` is the arrival
    of the first. `made` counts all attempts, `failures` those that failed while others of the subscription succeeded.
    `retry_at` is the earliest next attempt. `attempts` are the first three and the last three."""

    id: str
    queue: str
    sequence: int
    status: DeliveryStatus = DeliveryStatus.OPEN
    events: tuple[bytes, ...] = ()
    offsets: tuple[tuple[str, int], ...] = ()
    count: int = 0
    size: int = 0
    digest: str = ""
    first_at: datetime
    cut_at: datetime
    made: int = 0
    failures: int = 0
    retry_at: datetime | None = None
    settled_at: datetime | None = None
    attempts: tuple[DeliveryAttempt, ...] = ()

    @property
    def body(self) -> bytes:
        return b"[" + b",".join(self.events) + b"]"


class DeliveryChoice(Struct, frozen=True, kw_only=True):
    """A choice of a queue's deliveries: those after the sequence `after`, in one status, cut at `cut_from` or later."""

    after: int = 0
    status: DeliveryStatus | None = None
    cut_from: datetime | None = None


class DeliveryPlace(Struct, frozen=True):
    sequence: Annotated[int, Meta(ge=0, le=MOST_SEQUENCE)]


def delivery_id(queue: str, sequence: int) -> str:
    return hashlib.blake2b(f"{queue}\0{sequence}".encode(), digest_size=16).hexdigest()


def digest_events(events: Sequence[bytes]) -> str:
    return hashlib.blake2b(b",".join(events), digest_size=16).hexdigest()


def place_of_delivery(delivery: EventDelivery) -> DeliveryPlace:
    return DeliveryPlace(delivery.sequence)


def choose_deliveries(status: str, since: str) -> DeliveryChoice:
    """The choice of a query: a status, and a start, which is a known sequence or an instant of cuts."""
    try:
        wanted = DeliveryStatus(status) if status else None
    except ValueError:
        raise Invalid(f"status is one of {', '.join(DeliveryStatus)}", field="status", value=status) from None
    if since.isascii() and since.isdigit():
        if len(since) > len(str(MOST_SEQUENCE)) or int(since) > MOST_SEQUENCE:
            raise Invalid(f"a sequence is at most {MOST_SEQUENCE}", field="since", value=since)
        return DeliveryChoice(status=wanted, after=int(since))
    try:
        return DeliveryChoice(status=wanted, cut_from=read_instant(since, field="since") if since else None)
    except Invalid as error:
        raise Invalid(f"since is a sequence or a timestamp; {error.reason}", field="since", value=since) from None


def first_bytes(deliveries: Sequence[EventDelivery], most: int) -> list[EventDelivery]:
    """The first deliveries up to `most` bytes, but at least one."""
    chosen, size = list[EventDelivery](), 0
    for delivery in deliveries:
        if chosen and size + delivery.size > most:
            break
        chosen.append(delivery)
        size += delivery.size
    return chosen
