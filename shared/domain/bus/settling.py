"""Settling: the effect of a call on a delivery, its queue's cursor and its receiver's health.

2xx                        delivered
any other answer           open, and tried again later
the callback has changed   open, and tried again at once
another delivery has just succeeded: this one has a pause of its own, and after `max_attempts` such failures
                           it is a dead letter
older than max_age_hours   a dead letter
"""

from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.bus.cursors import Cursor
from shared.domain.bus.dead_letters import BusDeadLetter, DeathReason
from shared.domain.bus.deliveries import DeliveryAttempt, DeliveryStatus, EventDelivery
from shared.domain.bus.health import Care, own_pause
from shared.domain.bus.subscriptions import EventSubscription

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
