"""What the bus promises, checked from outside after every choice: by what stands in the store, by the log, and by the
calls that receivers had."""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

import structlog

from shared.bus.rules.deliveries import DeliveryStatus
from shared.bus.rules.events import read_event
from shared.bus.rules.subscriptions import COLLECTING, SubscriptionStatus, subscription_of
from shared.core.errors import CarillonError
from shared.drivers.mongo.documents import Document
from tests.models.bus.call_promises import CallPromises
from tests.models.bus.processes import BusServers
from tests.models.bus.promise import Promise
from tests.models.bus.weather import BusWeather
from tests.models.simulated.simulation import Step
from tests.models.simulated.worlds import Broken

Place = tuple[str, int]
"""A partition, and where in it."""

_READ = (
    "bus_subscriptions", "bus_positions", "bus_chunks", "bus_deliveries", "bus_cursors", "bus_topic_counts",
    "bus_unwoken", "bus_dead_letters",
)  # fmt: skip


class Promises:
    """What is known of a run so far. `now` is the loop's time."""

    def __init__(self, servers: BusServers, weather: BusWeather, now: Callable[[], float]) -> None:
        self.calls = CallPromises(servers.receivers, weather, now)
        self._servers = servers
        self._documents: dict[str, list[Document]] = {name: [] for name in _READ}
        self._deliveries: dict[str, Document] = {}
        self._wanted: defaultdict[str, list[Place]] = defaultdict(list)
        self._reached = dict.fromkeys(servers.event_log.partitions, 0)
        self._published = Counter[str]()
        self._accepted: dict[str, set[str]] = {}
        self.asked = Counter[str]()
        """How many changes of each key's subscription were asked for and not answered: they may come at any time."""
        self._faults: list[str] = []

    def check(self, step: Step | None, result: Any) -> None:
        """Raise `Broken` unless every promise was kept by what happened last."""
        if written := self._servers.database.written & set(_READ):
            self._servers.database.written.clear()
            for name in written:
                self._documents[name] = self._servers.database.documents(name)
            self._see_deliveries()
            self._see_positions()
            self._check_queues()
            self._check_topics()
            self.calls.see(self._subscriptions, self._deliveries)
        self.calls.check()
        if self._faults:
            raise Broken(Promise.FAULT, self._faults)

    def accept(self, event_id: str) -> None:
        """A publisher had its answer: who collects by now gets the event, whatever is asked for later."""
        logs = self._servers.event_log.partitions.values()
        events = [read_event(record) for log in logs for record in log]
        topic = next(event.topic for event in events if event is not None and event.id == event_id)
        settled = [found for found in self._subscriptions if not self.asked[found["key"]]]
        self._accepted[event_id] = {_queue(found) for found in settled if topic in found["topics"]}

    def answer(self, key: str) -> None:
        """A user had an answer about this key's subscription."""
        self.asked[key] -= 1

    def check_end(self) -> None:
        """All is at rest: is it as it should be?"""
        events = [read_event(record) for log in self._servers.event_log.partitions.values() for record in log]
        there = {event.id for event in events if event is not None}
        if lost := self._accepted.keys() - there:
            raise Broken(Promise.UNACCEPTED, sorted(lost))
        letters = {letter["_id"]: letter for letter in self._documents["bus_dead_letters"]}
        for delivery in self._deliveries.values():
            letter = letters.get(delivery["_id"])
            if delivery["status"] == DeliveryStatus.DEAD and (not letter or len(letter["events"]) != delivery["count"]):
                raise Broken(Promise.LETTER, delivery["_id"])

    def log(self, logger: object, name: str, event: MutableMapping[str, Any]) -> str:
        """What the product says went wrong: only what its servers did may have been expected."""
        error = sys.exception() if event.get("exc_info") is True else event.get("exc_info")
        if isinstance(error, BaseException) and not isinstance(error, CarillonError):
            self._faults.append(f"{event['event']}: {error!r}")
        raise structlog.DropEvent

    @property
    def standing(self) -> list[tuple[str, str, SubscriptionStatus]]:
        """Each subscription that there is: its key, its queue and its state."""
        return [
            (found["key"], _queue(found), SubscriptionStatus(found["state"]))
            for found in self._subscriptions
            if found["state"] != SubscriptionStatus.REMOVED
        ]

    def left(self) -> Iterator[str]:
        """What is still to be done for those who are to be called."""
        for name, log in self._servers.event_log.partitions.items():
            if self._reached[name] < len(log):
                yield f"{name} is read up to {self._reached[name]} of {len(log)}"
        yield from (f"unwoken {found['_id']}" for found in self._documents["bus_unwoken"])
        queues = {queue for _, queue, _ in self.standing}
        yield from (f"chunk {found['_id']}" for found in self._documents["bus_chunks"] if found["queue"] in queues)
        for delivery in self._deliveries.values():
            if delivery["queue"] in queues and delivery["status"] == DeliveryStatus.OPEN:
                yield f"delivery {delivery['queue']} {delivery['sequence']}"

    @property
    def _subscriptions(self) -> list[Document]:
        return [found for found in self._documents["bus_subscriptions"] if "generation" in found]

    def _see_deliveries(self) -> None:
        """Settled ones that retention forgets are still known here."""
        living = {_queue(found) for found in self._subscriptions}
        now = {found["_id"]: found for found in self._documents["bus_deliveries"]}
        for id, known in self._deliveries.items():
            if id not in now and known["status"] == DeliveryStatus.OPEN and known["queue"] in living:
                raise Broken(Promise.MISSED, f"the open delivery {id} is gone")
        self._deliveries |= now

    def _see_positions(self) -> None:
        """What a flush has read goes to those who collect at this very moment: nobody else has written with it."""
        for found in self._documents["bus_positions"]:
            name, position = found["_id"], found["position"]
            if position < self._reached[name]:
                raise Broken(Promise.BACKWARDS, f"{name}: {self._reached[name]} -> {position}")
            for offset in range(self._reached[name], position):
                self._see_event(name, offset)
            self._reached[name] = position

    def _see_event(self, partition: str, offset: int) -> None:
        event = read_event(self._servers.event_log.partitions[partition][offset])
        assert event is not None
        self._published[event.topic] += 1
        for found in self._subscriptions:
            if found["state"] not in COLLECTING:
                continue
            if _wants(found, event.topic, partition, offset):
                self._wanted[_queue(found)].append((partition, offset))
            elif _queue(found) in self._accepted.get(event.id, ()):
                raise Broken(Promise.MISSED, f"{found['key']} had the topic when {event.id} was accepted")

    def _check_queues(self) -> None:
        cursors = {found["_id"]: found for found in self._documents["bus_cursors"]}
        for _, queue, _ in self.standing:
            deliveries = sorted(
                (found for found in self._deliveries.values() if found["queue"] == queue),
                key=lambda found: int(found["sequence"]),
            )
            chunks = [found for found in self._documents["bus_chunks"] if found["queue"] == queue]
            self._check_places(queue, deliveries, chunks)
            _check_cursor(cursors[queue], deliveries)
            _check_chunks(chunks)

    def _check_places(self, queue: str, deliveries: Sequence[Document], chunks: Sequence[Document]) -> None:
        """Each event that the subscription wants is in one place, in the order of its partition."""
        places = [(name, at) for delivery in deliveries for name, at in delivery["offsets"]]
        places += [(name, at) for chunk in chunks for name, at in chunk["offsets"][chunk.get("skip", 0) :]]
        wanted, name = set(self._wanted[queue]), subscription_of(queue)
        if repeated := [place for place, times in Counter(places).items() if times > 1]:
            raise Broken(Promise.TWICE, f"{name}: {repeated}")
        if missed := wanted - set(places):
            raise Broken(Promise.MISSED, f"{name}: {sorted(missed)}")
        if unwanted := set(places) - wanted:
            raise Broken(Promise.UNWANTED, f"{name}: {sorted(unwanted)}")
        for partition in self._reached:
            offsets = [at for name, at in places if name == partition]
            if offsets != sorted(offsets):
                raise Broken(Promise.ORDER, f"{queue}: {partition} {offsets}")

    def _check_topics(self) -> None:
        counted = Counter[str]()
        for found in self._documents["bus_topic_counts"]:
            counted[found["topic"]] += found["n"]
        if counted != self._published:
            raise Broken(Promise.COUNTED, f"{dict(counted)} events are told, {dict(self._published)} were published")


def _wants(subscription: Document, topic: str, partition: str, offset: int) -> bool:
    """Whether it has the topic, or had it when the log got the event."""
    left = [former for former in subscription["former"] if topic in former["topics"]]
    return topic in subscription["topics"] or any(offset < dict(each["ends"]["offsets"])[partition] for each in left)


def _check_cursor(cursor: Document, deliveries: Sequence[Document]) -> None:
    by_status = {status: [found for found in deliveries if found["status"] == status] for status in DeliveryStatus}
    counts = {status: sum(found["count"] for found in some) for status, some in by_status.items()}
    are = {
        "sequence": max((found["sequence"] for found in deliveries), default=0),
        "open": counts[DeliveryStatus.OPEN],
        "open_deliveries": len(by_status[DeliveryStatus.OPEN]),
        "sent": counts[DeliveryStatus.DELIVERED],
        "dead": counts[DeliveryStatus.DEAD],
        "lost": 0,
    }
    told = {name: cursor[name] for name in are}
    if told != are or are["sequence"] != len(deliveries):
        raise Broken(Promise.COUNTED, f"the cursor of {cursor['_id']} tells {told}, there are {are}")


def _check_chunks(chunks: Sequence[Document]) -> None:
    for chunk in chunks:
        if chunk["n"] != len(chunk["events"]) - chunk.get("skip", 0):
            raise Broken(Promise.COUNTED, f"the chunk {chunk['_id']} tells {chunk['n']} events")


def _queue(subscription: Document) -> str:
    return f"{subscription['_id']}.{subscription['generation']}"
