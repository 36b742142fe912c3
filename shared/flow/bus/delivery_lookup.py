"""Looking up deliveries: those of a subscription, one by id, and the events of one while they are stored or in the
log."""

from msgspec import Struct

from shared.domain.bus.deliveries import DeliveryChoice, DeliveryPlace, EventDelivery
from shared.domain.bus.subscriptions import EventSubscription, subscription_of
from shared.domain.bus.wishes import has_to_be_made
from shared.domain.errors import NotFound
from shared.flow.bus.logged_events import LoggedEvents
from shared.flow.bus.subscribing import Subscribing
from shared.store import Store
from shared.store.documents import Page


class OwnedDelivery(Struct, frozen=True):
    """A delivery and its subscription."""

    delivery: EventDelivery
    subscription: EventSubscription


class DeliveryLookup:
    """Finds deliveries of a namespace."""

    def __init__(self, store: Store, subscribing: Subscribing, logged: LoggedEvents) -> None:
        self._store = store
        self._subscribing = subscribing
        self._logged = logged

    async def page(
        self, namespace: str, key: str, choice: DeliveryChoice, *, before: DeliveryPlace | None, limit: int
    ) -> Page[EventDelivery]:
        """The deliveries of a subscription before `before`, newest first, without their events."""
        subscription = await self._subscribing.get(namespace, key)
        upto = None if before is None else before.sequence
        return await self._store.bus_deliveries.page(subscription.queue, choice, before=upto, limit=limit)

    async def get(self, namespace: str, id: str) -> OwnedDelivery:
        """A delivery without its events. Raises `NotFound` also if it belongs to another namespace, or its subscription
        is removed."""
        delivery = await self._store.bus_deliveries.find(id, events=False)
        found = None
        if delivery is not None:
            found = await self._store.bus_subscriptions.get(subscription_of(delivery.queue))
        if delivery is None or found is None or has_to_be_made(found) or found.namespace != namespace:
            raise NotFound("there is no delivery with this id", field="id", value=id)
        return OwnedDelivery(delivery, found)

    async def read_events(self, owned: OwnedDelivery) -> tuple[bytes, ...]:
        """The events of a delivery, as its receiver gets them. Open deliveries and dead letters hold their events;
        those of other deliveries are read from the log. Raises `Gone` if the log has lost them, and `TooMany`."""
        id, namespace = owned.delivery.id, owned.subscription.namespace
        now = await self._store.bus_deliveries.find(id, events=True)
        if now is not None and now.events:
            return now.events
        letter = await self._store.bus_dead_letters.get(namespace, id)
        if letter is not None and letter.events:
            return letter.events
        return await self._logged.read(now or owned.delivery, owned.subscription.form)
