"""Trials: an artificial event shows the owner of a subscription whether its receiver answers."""

from datetime import datetime

import msgspec
from msgspec import Raw

from shared.domain.bus.deliveries import EventDelivery
from shared.domain.bus.events import BusEvent, published_form
from shared.domain.bus.subscriptions import EventForm, EventSubscription
from shared.domain.instants import ms

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
