"""`/bus/deliveries/{id}?events=true` of a settled delivery: what its receiver got, while the log has it."""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from services.feedback.fan_out import FanOut
from shared.bus.deliveries import MOST_RECORDS
from shared.bus.flushing import LogFlusher, UnwokenUpkeep
from shared.bus.rules.deliveries import EventDelivery
from shared.bus.rules.filters import EventFilter
from shared.bus.rules.subscriptions import EventForm
from shared.bus.topics import Registry
from shared.drivers.kafka import Stream
from shared.drivers.kafka.local import LocalStream
from shared.drivers.kafka.servers import KafkaServers
from shared.drivers.kafka.stream import KafkaStream
from shared.runtime.bus_settings import BusSettings
from tests.services.api.bus.conftest import is_refused
from tests.services.api.bus.native.conftest import Delivered
from tests.services.api.client import Client, Reply
from tests.stack import Endpoints

pytestmark = [pytest.mark.bus_routes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


@dataclass
class Logged:
    """A bus whose events go by a log. All are about one topic, of which only the even ones are subscribed to."""

    delivered: Delivered
    stream: Stream
    settings: BusSettings
    topic: str

    @cached_property
    def operator(self) -> Client:
        """Who may see the events."""
        app = self.delivered.house.build(self.settings, stream=self.stream)
        return Client(app, self.delivered.operator.headers, self.delivered.operator.peer)

    async def publish(self, *numbers: int) -> None:
        url, kinds = f"https://app.example.com/{self.topic}", ("even", "odd")
        events = [{"type": kinds[n % 2], "url": f"{url}/{n}", "data": {"n": n}, "id": f"event-{n}"} for n in numbers]
        owner = self.delivered.stranger.headers
        answer = await Client(self.operator.app, owner).post(f"/bus/topics/{self.topic}/events", events)
        assert answer.status == 202, answer.body

    async def got(self, *numbers: int, forms: Sequence[EventForm] = (EventForm.NATIVE,)) -> list[EventDelivery]:
        """Subscribe, in each of these forms, to the even ones of what is published now; what they come in."""
        bus, even = self.delivered.bus, sum(n % 2 == 0 for n in numbers)
        wanted = EventFilter(types=("even",))
        wish = {"topics": [self.topic], "filter": wanted, "timeout_ms": 3_600_000, "max_events": even}
        subscriptions = [await bus.subscribe(f"{form}-{secrets.token_hex(4)}", form=form, **wish) for form in forms]
        async with self.fanning_out():
            await self.publish(*numbers)
            for subscription in subscriptions:
                await bus.sent(subscription, even)
        made = [each.id for subscription in subscriptions for each in await bus.deliveries(subscription)]
        found = await bus.store.bus_deliveries.with_ids(made)
        assert [found[id].events for id in made] == [()] * len(forms)
        return [found[id] for id in made]

    async def ask(self, delivery: EventDelivery) -> Reply:
        return await self.operator.get(self.path(delivery))

    def path(self, delivery: EventDelivery) -> str:
        return self.delivered.about(f"deliveries/{delivery.id}", "events=true")

    @asynccontextmanager
    async def fanning_out(self) -> AsyncIterator[None]:
        bus = self.delivered.bus
        flusher = LogFlusher(bus.store, Registry(bus.store), bus.waker.wake, bus.time.now)
        unwoken = UnwokenUpkeep(bus.store, bus.waker.wake, bus.time.now)
        running = FanOut(self.stream, bus.store, flusher, unwoken, self.settings, self.stream.ping)
        await running.start()
        try:
            yield
        finally:
            await running.stop()


async def on_log(delivered: Delivered, stream: Stream, name: str) -> Logged:
    await stream.setup({name: 2})
    return Logged(delivered, stream, BusSettings(log_topic=name, group=name), f"topic-{secrets.token_hex(4)}")


@pytest_asyncio.fixture(loop_scope="module", params=["kafka", "local"])
async def logged(
    request: pytest.FixtureRequest, delivered: Delivered, stack: Endpoints, tmp_path: Path
) -> AsyncIterator[Logged]:
    name = f"log-{secrets.token_hex(4)}"
    is_kafka = request.param == "kafka"
    stream = KafkaStream(KafkaServers(stack.kafka_servers)) if is_kafka else LocalStream(tmp_path / "log.db")
    yield await on_log(delivered, stream, name)
    await stream.close()


async def forget(logged: Logged, place: tuple[str, int], servers: str) -> None:
    """Have the log forget what stands there, and all before it."""
    (partition, offset), topic = place, logged.settings.log_topic
    if isinstance(logged.stream, LocalStream):
        query = ("DELETE FROM records WHERE topic = ? AND position <= ?", (topic, offset))
        await logged.stream.transact(lambda log: log.execute(*query))
        return
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    number = int(partition.rpartition("/")[2])
    await admin.delete_records({TopicPartition(topic, number): RecordsToDelete(offset + 1)})
    await admin.close()


def events_of(reply: Reply) -> bytes:
    """The events as they stand in an answer."""
    assert reply.status == 200, reply.body
    return reply.body.strip().partition(b'"events":')[2][:-1]


async def test_a_settled_delivery_has_what_its_receiver_got_while_the_log_has_it(
    logged: Logged, stack: Endpoints
) -> None:
    deliveries = await logged.got(*range(9), forms=[*EventForm])
    calls = {call.id: call for call in logged.delivered.bus.receiver.arrivals()}
    assert [len(calls[delivery.id].events) for delivery in deliveries] == [5, 5]
    for delivery in deliveries:
        assert events_of(await logged.ask(delivery)) == calls[delivery.id].body.encode()
    assert len({calls[delivery.id].body for delivery in deliveries}) == 2
    hidden = await logged.delivered.viewer.get(logged.path(delivery))
    assert (hidden.json["redacted"], hidden.json["events"]) == (True, [])

    await forget(logged, min(delivery.offsets), stack.kafka_servers)
    gone = await logged.ask(delivery)
    assert is_refused(gone, 410)
    assert gone.json["reason"] == "the log has forgotten events of this delivery"


@pytest.mark.slow
async def test_another_log_has_others_in_their_places(delivered: Delivered, tmp_path: Path) -> None:
    first, second = LocalStream(tmp_path / "first.db"), LocalStream(tmp_path / "second.db")
    logged = await on_log(delivered, first, f"log-{secrets.token_hex(4)}")
    (delivery,) = await logged.got(0, 2)
    assert events_of(await logged.ask(delivery)).count(b"event-") == 2

    logged = await on_log(delivered, second, logged.settings.log_topic)
    forgotten = await logged.ask(delivery)
    assert is_refused(forgotten, 410)
    assert forgotten.json["reason"].startswith("the log has forgotten")
    await logged.got(4, 6)
    replaced = await logged.ask(delivery)
    assert is_refused(replaced, 410)
    assert replaced.json["reason"].startswith("another log")
    await first.close()
    await second.close()


@pytest.mark.slow
async def test_events_that_lie_too_far_apart_are_not_looked_for(delivered: Delivered, tmp_path: Path) -> None:
    stream = LocalStream(tmp_path / "far.db")
    logged = await on_log(delivered, stream, f"log-{secrets.token_hex(4)}")
    (delivery,) = await logged.got(0, 2)
    stored = delivered.bus.store._database["bus_deliveries"]
    await stored.update_one({"_id": delivery.id}, {"$set": {"offsets.1.1": MOST_RECORDS + delivery.offsets[0][1]}})
    refused = await logged.ask(delivery)
    assert is_refused(refused, 410)
    assert f"more than {MOST_RECORDS:,}" in refused.json["reason"]
    await stream.close()
