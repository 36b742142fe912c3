"""Deliveries: one batch of events for one receiver, with one body and one id on every attempt.

    open ──> delivered
    open <─> dead         a dead letter: it failed too often, or for too long; a retry opens it again
    open ──> discarded    its subscription was removed

A due delivery is cut from the chunks of a queue. Its `sequence` counts the deliveries of that queue from 1 on,
without a gap, and its id follows from both: a repeated cut finds it stored. The **cursor** of a queue has its
progress and its receiver's health. One transaction changes it with the deliveries and chunks that it counts, and
each change raises `v`: a write based on an older cursor fails. So two workers on one queue cut and settle nothing
twice.

| a call ends with | the delivery is |
| --- | --- |
| 2xx | delivered |
| any other answer | open, and tried again later |
| the callback has changed | open, and tried again at once |
| any other answer, while another delivery succeeds | open with a pause of its own; dead after `max_attempts` |
| older than `max_age_hours` | a dead letter |

A retry opens a dead letter again with the same id and events; its age restarts. A letter about a lost backlog has
no events: a retry replays them, while the log has them.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from shared.bus.rules.events import BusEvent, published_form
from shared.bus.rules.health import Care, ReceiverHealth, own_pause
from shared.bus.rules.subscriptions import EventForm, EventSubscription
from shared.core.documents import sources
from shared.core.errors import Invalid
from shared.core.instants import ms, read_instant

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


_OPEN_BESIDE_PROBES = 32
_LATEST = 0.2  # the weight of the latest call in the mean


class Cursor(Struct, frozen=True, kw_only=True):
    """The cursor of the queue `id`. `sequence` is that of the last delivery cut. `open` counts the events in open
    deliveries, `open_deliveries` these deliveries; `sent`, `dead` and `lost` count events. `mean_ms` is the recent
    duration of calls."""

    id: str
    v: int = 0
    sequence: int = 0
    open: int = 0
    open_deliveries: int = 0
    sent: int = 0
    dead: int = 0
    lost: int = 0
    mean_ms: float = 0.0
    health: ReceiverHealth = ReceiverHealth()

    def after_cut(self, deliveries: int, events: int) -> "Cursor":
        return replace(
            self,
            v=self.v + 1,
            sequence=self.sequence + deliveries,
            open=self.open + events,
            open_deliveries=self.open_deliveries + deliveries,
        )

    def after_call(self, ms: int) -> "Cursor":
        mean = ms if self.mean_ms == 0 else self.mean_ms * (1 - _LATEST) + ms * _LATEST
        return replace(self, mean_ms=round(mean, 3))

    def asks_another(self, first_open: EventDelivery) -> bool:
        """Whether the next probe should be a fresh delivery instead of this open one, whose turn it is.

        After all open deliveries have failed since the last success, either they or the receiver may be at fault. So
        every second probe is a fresh one, while few are open.
        """
        since = self.health.failing_since
        if since is None or self.health.failures % 2 or self.open_deliveries >= _OPEN_BESIDE_PROBES:
            return False
        # The last call decides the turn: if this delivery has failed since then, all have.
        return first_open.retry_at is not None and first_open.retry_at >= since


MOST_OPEN = 1_000
"""The limit of a queue's open deliveries for a retry: workers look at all of them."""


class DeathReason(StrEnum):
    """The reason why events became a dead letter, or were lost."""

    ATTEMPTS = "attempts"  # it failed too often while others succeeded
    AGE = "age"  # it was undelivered for too long
    BACKLOG = "backlog"  # the backlog exceeded its limits


class BusDeadLetter(Struct, frozen=True, kw_only=True):
    """Undelivered events. The id is that of their delivery. `events` are in the receiver's form, `offsets` are their
    places in the log.

    A letter about a lost backlog has no `sequence` and no events: its `offsets` are the first and last places of each
    partition, of arrivals from `first_at` to `last_at`, and `logs` are the ids of their logs.
    """

    id: str
    queue: str
    subscription: str
    namespace: str
    key: str
    reason: DeathReason
    died_at: datetime
    sequence: int
    count: int
    size: int
    first_at: datetime
    last_at: datetime | None = None
    events: tuple[bytes, ...] = ()
    offsets: tuple[tuple[str, int], ...] = ()
    logs: dict[str, str] = {}
    made: int = 0
    attempts: tuple[DeliveryAttempt, ...] = ()

    @property
    def is_loss(self) -> bool:
        return self.sequence == 0

    @property
    def can_be_retried(self) -> bool:
        """Whether it is a delivery, or knows the log of its events."""
        return not self.is_loss or bool(self.logs)

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        """The range of offsets of its events in each partition: first, and end (exclusive)."""
        spans: dict[str, tuple[int, int]] = {}
        for partition, offset in self.offsets:
            first, end = spans.get(partition, (offset, offset + 1))
            spans[partition] = min(first, offset), max(end, offset + 1)
        return spans


class BusLetterPlace(Struct, frozen=True, array_like=True):
    died_at: Annotated[datetime, Meta(tz=True)]
    id: str


def place_of_letter(letter: BusDeadLetter) -> BusLetterPlace:
    return BusLetterPlace(letter.died_at, letter.id)


def reopen(cursor: Cursor, letter: BusDeadLetter, now: datetime) -> tuple[Cursor, EventDelivery]:
    """Open the delivery of a dead letter again. Its age and failures restart."""
    delivery = EventDelivery(
        id=letter.id,
        queue=letter.queue,
        sequence=letter.sequence,
        events=letter.events,
        offsets=letter.offsets,
        count=letter.count,
        size=letter.size,
        digest=digest_events(letter.events),
        first_at=letter.first_at,
        cut_at=now,
        made=letter.made,
        attempts=letter.attempts,
    )
    opened = replace(
        cursor,
        v=cursor.v + 1,
        open=cursor.open + letter.count,
        open_deliveries=cursor.open_deliveries + 1,
        dead=cursor.dead - letter.count,
    )
    return opened, delivery


GONE = 410
_FIRST_ATTEMPTS, _LAST_ATTEMPTS = 3, 3


class CallResult(Struct, frozen=True, kw_only=True):
    callback: str
    attempt: DeliveryAttempt
    retry_after: timedelta = timedelta(0)

    @property
    def is_success(self) -> bool:
        return 200 <= self.attempt.status < 300

    @property
    def is_gone(self) -> bool:
        """Whether the receiver wants no events ever again."""
        return self.attempt.status == GONE


class SettledDelivery(Struct, frozen=True):
    before: EventDelivery
    after: EventDelivery
    letter: BusDeadLetter | None = None


def settle(
    cursor: Cursor, delivery: EventDelivery, result: CallResult, subscription: EventSubscription, care: Care
) -> tuple[Cursor, SettledDelivery]:
    at, fails_alone = result.attempt.at, not cursor.health.is_failing
    cursor = cursor.after_call(result.attempt.ms)
    tried = replace(delivery, made=delivery.made + 1, attempts=_keep_some(delivery.attempts, result.attempt))
    if result.is_success:
        after = replace(tried, status=DeliveryStatus.DELIVERED, settled_at=at, retry_at=None, events=())
        cursor = _close(replace(cursor, health=cursor.health.after_success(at, care)), delivery)
        return replace(cursor, sent=cursor.sent + delivery.count), SettledDelivery(delivery, after)
    if result.callback != subscription.callback:
        # Failures and wishes of the previous receiver say nothing about the present one.
        return cursor, SettledDelivery(delivery, replace(tried, retry_at=at))
    took = timedelta(milliseconds=result.attempt.ms)
    health = cursor.health.after_failure(at, care, took=took, retry_after=result.retry_after)
    cursor = replace(cursor, health=health)
    failures = delivery.failures + fails_alone
    if failures >= subscription.max_attempts and not subscription.ordered:
        return bury(cursor, tried, subscription, DeathReason.ATTEMPTS, at)
    retry_at = at + own_pause(failures) if fails_alone and not subscription.ordered else at
    return cursor, SettledDelivery(delivery, replace(tried, failures=failures, retry_at=retry_at))


def bury(
    cursor: Cursor, delivery: EventDelivery, subscription: EventSubscription, reason: DeathReason, at: datetime
) -> tuple[Cursor, SettledDelivery]:
    letter = BusDeadLetter(
        id=delivery.id,
        queue=delivery.queue,
        subscription=subscription.id,
        namespace=subscription.namespace,
        key=subscription.key,
        reason=reason,
        died_at=at,
        sequence=delivery.sequence,
        count=delivery.count,
        size=delivery.size,
        first_at=delivery.first_at,
        events=delivery.events,
        offsets=delivery.offsets,
        made=delivery.made,
        attempts=delivery.attempts,
    )
    after = replace(delivery, status=DeliveryStatus.DEAD, settled_at=at, retry_at=None, events=())
    cursor = _close(cursor, delivery)
    return replace(cursor, dead=cursor.dead + delivery.count), SettledDelivery(delivery, after, letter)


def is_too_old(delivery: EventDelivery, subscription: EventSubscription, now: datetime) -> bool:
    return now - delivery.cut_at >= timedelta(hours=subscription.max_age_hours)


def _close(cursor: Cursor, delivery: EventDelivery) -> Cursor:
    return replace(cursor, open=cursor.open - delivery.count, open_deliveries=cursor.open_deliveries - 1)


def _keep_some(attempts: tuple[DeliveryAttempt, ...], latest: DeliveryAttempt) -> tuple[DeliveryAttempt, ...]:
    every = (*attempts, latest)
    if len(every) <= _FIRST_ATTEMPTS + _LAST_ATTEMPTS:
        return every
    return (*every[:_FIRST_ATTEMPTS], *every[-_LAST_ATTEMPTS:])


TRIAL_TYPE = "noop"
TRIAL_URL = "https://example.com/carillon-test"
TRIAL_TOPIC = "carillon_test"


def make_trial(subscription: EventSubscription, id: str, now: datetime) -> EventDelivery:
    topic, at = next(iter(subscription.topics), TRIAL_TOPIC), ms(now)
    event = BusEvent(id=id, at=at, topic=topic, type=TRIAL_TYPE, url=TRIAL_URL, t=Raw(str(at).encode()))
    encoded = published_form(event) if subscription.form is EventForm.PUBLISHED else msgspec.json.encode(event)
    return EventDelivery(
        id=id,
        queue=subscription.queue,
        sequence=0,
        events=(encoded,),
        count=1,
        size=len(encoded),
        first_at=now,
        cut_at=now,
    )
