"""Jobs and schedules over TLS and with logins, by users who have the listed rights alone."""

import re
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from structlog.testing import capture_logs

from services.embedded.processes import free_port
from services.wiring.process import set_up
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.bus.rules.events import EventDraft
from shared.bus.rules.subscriptions import SubscriptionWish
from shared.clock.rules.callbacks import CALL_QUEUE
from shared.core.tasks import TASK_PREFIXES
from shared.runtime.configuration import load
from tests.e2e.callees import OPEN, QUICK, callee, calls, settled
from tests.e2e.clocks import receiving, scheduled
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer
from tests.receivers import receiver
from tests.secure import rights
from tests.secure.place import CALLBACK_TOPIC, Secure
from tests.stack import certificates
from tests.waiting import until

pytestmark = [pytest.mark.secure, pytest.mark.native]


async def test_a_job_reaches_every_device_once(house: House, secure: Secure) -> None:
    await house.devices(10_000)
    for service in ("worker", "worker", "scheduler"):
        await house.start(service, **secure.urls())
    await house.exactly_once(await house.post(), 10_000)
    assert "AuthorizationFailed" not in house.logs()


async def test_a_schedule_fires_by_each_kind_of_callback(
    house: House, secure: Secure, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, files = free_port(), certificates.ensure()
    monkeypatch.setenv("SSL_CERT_FILE", str(files.ca))
    customer = Customer(port)
    customer.base = f"https://127.0.0.1:{port}"
    await house.servers.stream.setup({CALLBACK_TOPIC: 1})
    known = {
        "CARILLON_API_PORT": str(port),
        "CARILLON_API_FIRST_ADMIN": "admin@example.com",
        "CARILLON_API_CERTIFICATE_FILE": str(files.server),
    }
    await house.start("api", CARILLON_CALLBACKS_TOPICS=CALLBACK_TOPIC, **known, **secure.urls())
    await house.start("scheduler", **QUICK, **secure.urls())
    await house.start("worker", **OPEN, **secure.urls())
    due = (await house.servers.time.now() + timedelta(seconds=2.5)).replace(microsecond=0)
    status, answer = await customer.call("POST", "/schedules", record(CALLBACK_TOPIC, due.isoformat()))
    assert status == 201, answer
    async with callee() as server, receiving(house, "users.queue") as receiver:
        called = await calls(house, "call", server.url, 1)
        await scheduled(house, "message", 1)
        await receiver.got(1)
        await settled(house, called)
    servers = secure.stack.kafka_servers
    async with AIOKafkaConsumer(CALLBACK_TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        found = await consumer.getone()
    assert [each.key for each in receiver.all] == ["message"]
    assert [each.key for each in server.all] == ["call"]
    assert (found.key, found.value) == (b"u42", b'{"id": "42"}')


async def test_an_event_of_the_bus_reaches_its_receiver(house: House, secure: Secure, tmp_path: Path) -> None:
    """It is published, brought to its queue and delivered with the page's rights."""
    for service in ("feedback-bus", "scheduler", "worker"):
        await house.start(service, **OPEN, **QUICK, **secure.urls())
    publishing = Servers(load({**house.environment, **secure.urls()}), service="api")
    bus = Rooms(publishing).bus
    async with receiver(tmp_path / "arrivals") as at:
        wish = SubscriptionWish(
            namespace="token:2", key="k", callback=f"{at.url}/k", topics=("widgets",), timeout_ms=0, max_events=1
        )
        await bus.subscribing.subscribe(wish)
        [id] = await bus.publisher.publish("widgets", "token:1", [EventDraft("create", "https://example.com/1")])

        async def has_arrived() -> bool:
            return len(at.arrivals("/k")) > 0

        await until(has_arrived, "the event to arrive")
        [event] = at.arrivals("/k")[0].events
    assert isinstance(event, dict)
    assert event["id"] == id
    assert "AuthorizationFailed" not in house.logs()
    await publishing.close()


async def test_init_makes_the_ledger_the_log_and_indexes(house: House, secure: Secure) -> None:
    """The queues are there: who made them needed more."""
    own = {
        "CARILLON_STREAM_LEDGER_TOPIC": f"carillon.ledger-{secrets.token_hex(4)}",
        "CARILLON_BUS_LOG_TOPIC": f"carillon.bus-{secrets.token_hex(4)}",
    }
    servers = Servers(load({**house.environment, **secure.urls(), **own}), service="init")
    rooms = Rooms(servers)
    await set_up(rooms)
    with capture_logs() as logs:
        await servers.stream.verify(rooms.bus.stream_topics)
    assert rooms.bus.stream_topics.keys() == {own["CARILLON_BUS_LOG_TOPIC"]}
    # What we may not ask for would be told, and not looked at.
    assert [entry for entry in logs if entry.get("of") in own.values()] == []
    await servers.close()


def test_the_page_names_the_queues_that_there_are() -> None:
    [patterns] = [content for path, content in rights.rabbitmq() if path.startswith("permissions/")]
    queues = [f"{prefix}any" for prefix in TASK_PREFIXES] + [CALL_QUEUE, f"{CALL_QUEUE}.dlq"]
    assert all(re.search(patterns["read"], queue) for queue in queues)
    assert not re.search(patterns["read"], "users.queue")


def record(topic: str, instant: str) -> dict[str, Any]:
    data = {"topic": topic, "key": "u42", "payload": {"id": "42"}}
    return {"key": "record", "schedules": [instant], "callback": {"type": "kafka", "data": data}}
