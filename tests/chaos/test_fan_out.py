"""Every event of the log comes into each queue that wants it once, whoever is killed, put to sleep or cut off, and no
queue that was brought something stays unwoken.

Expectations are what was published. The chunks, the wake-ups and the log are read directly.
"""

import asyncio
import json
import signal
from collections import Counter
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from services.embedded.processes import free_port
from shared.bus.rules.events import EventDraft
from shared.bus.rules.filters import EventFilter
from shared.bus.rules.subscriptions import EventForm, EventSubscription, SubscriptionWish
from shared.bus.rules.wake_ups import FAR_AHEAD, queue_owner
from tests.drivers.rabbitmq.proxy import SilencableProxy
from tests.e2e.house import House, Process
from tests.e2e.test_routemaster import BusClient
from tests.stack.mongodb import through_port
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

PUBLISHER, SUBSCRIBER = "token:publisher", "token:subscriber"
POINTS = ("fanout.before_flush", "fanout.after_flush", "fanout.after_wake")
ENTITIES = 7


class Bus:
    """A publisher and its subscribers, and oracles of what these must find in their queues."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.part = house.rooms.bus
        self.expected: dict[str, Counter[str]] = {}
        self.subscriptions: list[EventSubscription] = []
        self.published = 0
        self._numbers = count()

    async def subscribe(self, key: str, **fields: Any) -> EventSubscription:
        wish = SubscriptionWish(
            namespace=SUBSCRIBER, key=key, callback="https://r.example/", topics=("widgets",), **fields
        )
        made = (await self.part.subscribing.subscribe(wish)).subscription
        self.subscriptions.append(made)
        self.expected[made.queue] = Counter()
        return made

    async def publish(self, events: int, *, at_once: int = 5) -> None:
        """Publish; each event's number is its `t`, so that the order of an entity's can be seen."""
        for first in range(0, events, at_once):
            drafts = [self._draft(next(self._numbers)) for _ in range(first, min(first + at_once, events))]
            ids = await self.part.publisher.publish("widgets", PUBLISHER, drafts)
            self.published += len(ids)
            for subscription in self.subscriptions:
                wanted = subscription.filter.types
                self.expected[subscription.queue].update(
                    draft.id for draft in drafts if not wanted or draft.type in wanted
                )

    def _draft(self, number: int) -> EventDraft:
        kind = "create" if number % 3 else "delete"
        t = msgspec.Raw(str(number).encode())
        return EventDraft(kind, f"https://x.example/{number % ENTITIES}", t, id=f"e{number}")

    async def settled(self) -> None:
        """Wait until everything published was brought; nothing may be there twice, out of order or unwoken."""
        await until(self.is_brought, "all events to be in their queues")
        await until(self._is_told, "all queues to be told")
        for subscription in self.subscriptions:
            await self._check_order(subscription)
        counts = await self.house.servers.store.bus_topics.read_counts(["widgets"])
        assert counts["widgets"][0] == self.published

    async def events_of(self, subscription: EventSubscription) -> list[dict[str, Any]]:
        """What lies in the queue, as its receiver would get it."""
        chunks = self._collection("bus_chunks").find({"queue": subscription.queue}).sort("_id")
        return [msgspec.json.decode(event) for chunk in await chunks.to_list() for event in chunk["events"]]

    async def is_brought(self) -> bool:
        return all([await self._has_all(subscription) for subscription in self.subscriptions])

    async def _has_all(self, subscription: EventSubscription) -> bool:
        found = Counter(f"e{event['t']}" for event in await self.events_of(subscription))
        expected = self.expected[subscription.queue]
        assert found <= expected, f"too often: {found - expected}\n{self.house.logs()}"
        return found == expected

    async def _is_told(self) -> bool:
        if await self._collection("bus_unwoken").find_one({}) is not None:
            return False
        for subscription in self.subscriptions:
            wake_up = await self._collection("occurrences").find_one({"owner": queue_owner(subscription.queue)})
            assert wake_up is not None
            told, events = wake_up["of"]["waiting"], self.expected[subscription.queue].total()
            assert told >= events, f"{events - told} of {events} events were never told\n{self.house.logs()}"
            assert wake_up["fires_at"] < FAR_AHEAD
        return True

    async def _check_order(self, subscription: EventSubscription) -> None:
        events = await self.events_of(subscription)
        for entity in range(ENTITIES):
            numbers = [event["t"] for event in events if event["url"].endswith(f"/{entity}")]
            assert numbers == sorted(numbers)

    def _collection(self, name: str) -> Any:
        return self.house.servers.store._database[name]


@pytest.fixture
async def bus(house: House) -> Bus:
    made = Bus(house)
    await made.subscribe("all", timeout_ms=1_000)
    await made.subscribe("published", form=EventForm.PUBLISHED, timeout_ms=0)
    await made.subscribe("some", filter=EventFilter(types=("delete",)), max_events=3)
    await house.start("scheduler")
    return made


async def ended(*processes: Process) -> None:
    for process in processes:
        process.send(signal.SIGTERM)
    for process in processes:
        assert await process.gone() == 0, process.log


@pytest.mark.proof
@pytest.mark.parametrize("nth", and_rarely(1, rarely=(3,)))
@pytest.mark.parametrize("point", and_rarely(POINTS[0], rarely=POINTS[1:]))
async def test_one_of_two_is_killed_around_a_flush(bus: Bus, point: str, nth: int) -> None:
    await bus.publish(100)
    killed = await bus.house.start("feedback-bus", fault=f"{point}@{nth}=kill")
    publishing = asyncio.create_task(bus.publish(400))
    other = await bus.house.start("feedback-bus")
    await killed.reached(point)
    assert await killed.gone() == -signal.SIGKILL
    await publishing
    await bus.settled()
    await bus.publish(50)
    await bus.settled()
    await ended(other)
    await bus.settled()


async def test_a_partition_moves_while_its_reader_sleeps_on_a_fold(bus: Bus) -> None:
    """The sleeper wakes up with a fold that somebody else has stored by then."""
    await bus.publish(200)
    sleeper = await bus.house.start("feedback-bus", fault="fanout.before_flush=stop")
    await sleeper.reached("fanout.before_flush")
    heir = await bus.house.start("feedback-bus")
    await bus.settled()
    sleeper.send(signal.SIGCONT)
    await sleeper.said("a fold was lost")
    await bus.publish(200)
    await bus.settled()
    await ended(sleeper, heir)
    await bus.settled()


@pytest.mark.slow
async def test_fan_outs_come_and_go_while_events_and_subscribers_come_in(bus: Bus) -> None:
    publishing = asyncio.create_task(bus.publish(1_500))
    running = [await bus.house.start("feedback-bus") for _ in range(2)]
    for number in range(4):
        heir = await bus.house.start("feedback-bus")
        await bus.house.kill(running.pop(0))
        running.append(heir)
        # Who subscribes is not known to be answered before or after what is published beside it.
        wish = SubscriptionWish(namespace=SUBSCRIBER, key=f"new{number}", callback="https://r/", topics=("others",))
        await bus.part.subscribing.subscribe(wish)
    await publishing
    await bus.settled()
    late = await bus.subscribe("late")
    await bus.publish(100)
    await bus.settled()
    assert len(await bus.events_of(late)) == 100
    await ended(*running)
    await bus.settled()


@pytest.mark.slow  # as the reader of feedback, which waits for it in each run
async def test_mongodb_is_silent_for_a_while(bus: Bus) -> None:
    url = urlsplit(bus.house.environment["CARILLON_STORE_URL"])
    assert url.hostname
    assert url.port
    proxy = SilencableProxy(url.hostname, url.port)
    async with proxy.running():
        through = through_port(bus.house.environment["CARILLON_STORE_URL"], proxy.port)
        running = await bus.house.start("feedback-bus", CARILLON_STORE_URL=through)
        await bus.publish(100)
        await bus.settled()
        proxy.silent = True
        await bus.publish(100)
        await running.said("waits to store|waits to read|waits for the log")
        proxy.silent = False
        await bus.publish(100)
        await bus.settled()
        await ended(running)
        await bus.settled()


async def test_an_api_dies_after_the_log_has_an_event_and_before_it_answers(bus: Bus) -> None:
    """The publisher knows nothing, and the event is accepted all the same: it is brought, once."""
    port = free_port()
    own = {"CARILLON_API_PORT": str(port), "CARILLON_BUS_ROOT_KEY": "root-key-of-the-bus"}
    killed = await bus.house.start("api", fault="bus.after_append=kill", **own)
    answer = await BusClient(port, own["CARILLON_BUS_ROOT_KEY"]).ask("POST", "/api_tokens", b'{"name": "app"}')
    client = BusClient(port, json.loads(answer.body)["token"])
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await client.publish("widgets", 1, timestamp=77)
    assert await killed.gone() == -signal.SIGKILL
    bus.published += 1
    for subscription in bus.subscriptions[:2]:
        bus.expected[subscription.queue]["e77"] += 1
    fan_out = await bus.house.start("feedback-bus")
    await until(bus.is_brought, "the event to be in both queues")
    await ended(fan_out)
    assert await bus.is_brought()
