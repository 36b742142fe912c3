"""What the bus promises its receivers, checked by the calls that they had."""

from collections.abc import Callable, Mapping, Sequence

from shared.bus.rules.deliveries import DeliveryStatus
from shared.bus.rules.subscriptions import SubscriptionStatus
from shared.drivers.mongo.documents import Document
from tests.models.bus.promise import Promise
from tests.models.bus.receivers import ReceiverCall, ReceiverCalls
from tests.models.bus.weather import BusWeather
from tests.models.simulated.worlds import Broken

_NOTICED_WITHIN = 8.0
"""Seconds in which a worker that is at work notices that a subscription is not to be called any more: it looks every
three seconds, and may wait as long for the end of a call."""


class CallPromises:
    """The calls so far. `now` is the loop's time."""

    def __init__(self, receivers: ReceiverCalls, weather: BusWeather, now: Callable[[], float]) -> None:
        self._receivers = receivers
        self._weather = weather
        self._now = now
        self._looked = 0
        self._calls: dict[str, list[ReceiverCall]] = {}
        self._bodies: dict[str, bytes] = {}
        self._queues: dict[str, str] = {}
        self._statuses: dict[str, DeliveryStatus] = {}
        self._ordered: set[str] = set()
        self._idle_since: dict[str, float] = {}

    def see(self, subscriptions: Sequence[Document], deliveries: Mapping[str, Document]) -> None:
        """The store has changed: this is what stands in it now."""
        self._see_subscriptions(subscriptions)
        for id, delivery in deliveries.items():
            if id not in self._statuses:
                self._bodies[id] = b"[" + b",".join(delivery["events"]) + b"]"
                self._queues[id] = delivery["queue"]
            status = DeliveryStatus(delivery["status"])
            if status is DeliveryStatus.DELIVERED and not self._was_taken(id):
                raise Broken(Promise.UNTRUE, f"{id} is delivered, and its receiver has not said so")
            self._statuses[id] = status

    def check(self) -> None:
        """Raise `Broken` for a call that should not have been made."""
        fresh = self._receivers.calls[self._looked :]
        self._looked += len(fresh)
        for call in fresh:
            self._check_call(call)
            self._calls.setdefault(call.delivery, []).append(call)

    def _see_subscriptions(self, subscriptions: Sequence[Document]) -> None:
        idle = dict[str, float]()
        present = {f"{found['_id']}.{found['generation']}": found for found in subscriptions}
        for queue in {*self._queues.values(), *present}:
            found = present.get(queue)
            if found is None or found["state"] != SubscriptionStatus.ACTIVE:
                idle[queue] = self._idle_since.get(queue, self._now())
        self._idle_since = idle
        self._ordered = {queue for queue, found in present.items() if found["ordered"]}

    def _check_call(self, call: ReceiverCall) -> None:
        id = call.delivery
        if id not in self._statuses:
            raise Broken(Promise.UNTRUE, f"{id} was called before it was stored")
        if call.body != self._bodies[id]:
            raise Broken(Promise.CHANGED, f"{id}: {call.body!r}, not {self._bodies[id]!r}")
        queue = self._queues[id]
        if not self._weather.is_punctual:
            return
        if self._statuses[id] is not DeliveryStatus.OPEN and queue not in self._idle_since:
            raise Broken(Promise.REPEATED, f"{id} is {self._statuses[id]}")
        idle_for = self._now() - self._idle_since.get(queue, self._now())
        if idle_for > _NOTICED_WITHIN:
            raise Broken(Promise.IDLE, f"{id} was called {idle_for:.1f} s after {queue} was to be left alone")
        if queue in self._ordered:
            self._check_turn(queue, call)

    def _check_turn(self, queue: str, call: ReceiverCall) -> None:
        """Of an ordered subscription, one delivery is on its way at a time, and those before it are done."""
        for id, calls in self._calls.items():
            if self._queues[id] != queue:
                continue
            if id != call.delivery and self._statuses[id] is DeliveryStatus.OPEN:
                raise Broken(Promise.CROWDED, f"{call.delivery} is called before {id} is done")
            if any(other.ended_at is None for other in calls):
                raise Broken(Promise.CROWDED, f"{call.delivery} is called while {id} is on its way")

    def _was_taken(self, id: str) -> bool:
        return any(200 <= call.status < 300 for call in self._calls.get(id, ()))
