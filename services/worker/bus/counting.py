"""Counters of the bus in workers."""

from shared.domain.bus.settling import CallResult, SettledDelivery
from shared.domain.bus.subscriptions import EventSubscription
from shared.runtime.bounded_labels import BoundedLabels
from shared.runtime.metrics import (
    BUS_DELIVERED_EVENTS,
    BUS_DELIVERIES,
    BUS_DELIVERY_SECONDS,
    BUS_EVENTS_SETTLED,
    BUS_LATENCY,
)

_label = BoundedLabels()


def count_throttled(subscription: EventSubscription) -> None:
    """Count a receiver that was not called because it is paused."""
    BUS_DELIVERIES.labels(_label(subscription.id), "throttled").inc()


def count_call(subscription: EventSubscription, settled: SettledDelivery, result: CallResult) -> None:
    """Count a call that is settled."""
    label, outcome, delivery = _label(subscription.id), "success" if result.is_success else "failure", settled.before
    BUS_DELIVERIES.labels(label, outcome).inc()
    BUS_DELIVERED_EVENTS.labels(label, outcome).inc(delivery.count)
    BUS_DELIVERY_SECONDS.labels(outcome).observe(result.attempt.ms / 1_000)
    waited = (result.attempt.at - delivery.first_at).total_seconds()
    if not delivery.made:
        BUS_LATENCY.labels("first").observe(waited)
    if result.is_success:
        BUS_LATENCY.labels("last").observe(waited)
    count_settled(subscription, settled)


def count_settled(subscription: EventSubscription, settled: SettledDelivery) -> None:
    """Count the events of a delivery that is settled."""
    if settled.after.settled_at is not None:
        BUS_EVENTS_SETTLED.labels(_label(subscription.id), settled.after.status.value).inc(settled.before.count)
