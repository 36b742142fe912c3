"""The whole way of an event, as Routemaster's users know it: the client's own bytes over a socket, the API, the log,
the fan-out, a worker, and a receiver that behaves as the drain does. Every one is a process of its own."""

import asyncio
import base64
import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.embedded.processes import free_port
from tests.contrib.import_routemaster.routemaster import ROOT as OLD_ROOT_KEY
from tests.contrib.import_routemaster.routemaster import running
from tests.e2e.drain import Drained, draining
from tests.e2e.house import House
from tests.services.api.bus.recorded import CONVERSATION, OF_ROOT, request
from tests.stack.certificates import Authority
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.e2e, pytest.mark.native]

ROOT_KEY = "root-of-the-bus-of-tests"
ON_BUS = {
    "CARILLON_BUS_ROOT_KEY": ROOT_KEY,
    "CARILLON_BUS_ALLOW_HTTP": "true",
    "CARILLON_CALLBACKS_ALLOWED_NETWORKS": "127.0.0.0/8",
}


class Answer:
    """What came back over a socket."""

    def __init__(self, head: bytes, body: bytes) -> None:
        line, *headers = head.decode("latin-1").split("\r\n")
        self.status = int(line.split(" ")[1])
        self.headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in headers)}
        self.body = body

    def __str__(self) -> str:
        return f"{self.status} {self.headers} {self.body!r}"


class BusClient:
    """Sends what Routemaster's client sends, over a socket that it keeps."""

    def __init__(self, port: int, token: str) -> None:
        self.token = token
        self._port = port

    async def ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(request(method, path, self.token, body, host=f"127.0.0.1:{self._port}"))
        try:
            async with asyncio.timeout(SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
                answer = Answer(head, b"")
                answer.body = await reader.readexactly(int(answer.headers.get("content-length", "0")))
        finally:
            writer.close()
        return answer

    async def publish(self, topic: str, number: int, **fields: Any) -> None:
        event = {"type": "create", "url": f"https://app.example.com/{topic}/{number}", "timestamp": None, **fields}
        answer = await self.ask("POST", f"/topics/{topic}", json.dumps(event).encode())
        assert (answer.status, answer.body) == (200, b""), answer

    async def subscribe(self, topic: str, callback: str, **options: Any) -> None:
        wish = {"topics": [topic], "callback": callback, **options}
        answer = await self.ask("POST", "/subscription", json.dumps(wish).encode())
        assert (answer.status, answer.body) == (204, b""), answer

    async def subscription(self) -> dict[str, Any]:
        shown = json.loads((await self.ask("GET", "/subscriptions")).body)
        return next(each for each in shown if each["subscriber"] == self.token)


class OnBus:
    """A bus at work, and the clients that use it."""

    def __init__(self, port: int, drained: Drained) -> None:
        self._port = port
        self.drained = drained
        self.root = BusClient(port, ROOT_KEY)

    async def client(self, name: str) -> BusClient:
        answer = await self.root.ask("POST", "/api_tokens", json.dumps({"name": name}).encode())
        assert answer.status == 201, answer
        return BusClient(self._port, json.loads(answer.body)["token"])

    def known(self, token: str) -> BusClient:
        """Who has a token."""
        return BusClient(self._port, token)

    async def got(self, topic: str, events: int) -> list[list[dict[str, Any]]]:
        """The batches of a topic, once so many events of it have come."""
        await until(lambda: [*self.drained.topics()].count(topic) >= events, f"{events} events of {topic}")
        return self.drained.batches(topic)


@pytest.fixture
async def bus(house: House, tmp_path: Path) -> AsyncIterator[OnBus]:
    port, drain = free_port(), free_port()
    async with draining(tmp_path, drain) as drained:
        await house.start("api", CARILLON_API_PORT=str(port), **ON_BUS)
        for service in ("feedback-bus", "worker", "scheduler"):
            await house.start(service, **ON_BUS)
        yield OnBus(port, drained)


async def test_events_come_in_the_batches_that_were_asked_for(bus: OnBus) -> None:
    publisher, drain = await bus.client("app"), bus.drained.url
    wishes = {
        "full": {"max": 5, "timeout": 3_600_000},
        "timely": {"max": 10, "timeout": 1_000},
        "single": {"max": 1, "timeout": 0},
    }
    for name, wish in wishes.items():
        await (await bus.client(name)).subscribe(name, drain, uuid="me", **wish)
        began = time.time()
        for number in range(5):
            await publisher.publish(name, number, data={"n": number} if number else None, timestamp=number or None)
        sizes = [len(batch) for batch in await bus.got(name, 5)]
        assert sum(sizes) == 5
        if name == "timely":
            # How many come in the second that begins with the first event is a matter of the machine.
            first = next(each for each in bus.drained.requests() if '"timely"' in each["body"])
            assert first["at"] - began >= 1
        else:
            assert sizes == {"full": [5], "single": [1] * 5}[name]

    [full] = bus.drained.batches("full")
    assert [event["url"].rpartition("/")[2] for event in full] == ["0", "1", "2", "3", "4"]
    assert [event.get("data") for event in full] == [None, *({"n": number} for number in range(1, 5))]
    assert [event["t"] for event in full[1:]] == [1, 2, 3, 4]
    assert abs(full[0]["t"] - time.time() * 1_000) < 600_000
    assert {*full[0]} == {"topic", "type", "url", "t"}
    for taken in bus.drained.requests():
        assert taken["status"] == 204, taken
        headers = taken["headers"]
        assert headers["content-type"] == "application/json"
        assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"me:x"
        assert {"webhook-id", "webhook-timestamp", "carillon-sequence"} <= headers.keys()
        assert headers["carillon-attempt"] == "1"

    for name in wishes:
        shown = await until_sent(bus, name, 5)
        assert shown["events"] == {"sent": 5, "queued": 0, "oldest": None}


async def until_sent(bus: OnBus, name: str, sent: int) -> dict[str, Any]:
    """A subscription as root sees it, once so many events of it were delivered."""
    shown: dict[str, Any] = {}

    async def is_sent() -> bool:
        found = json.loads((await bus.root.ask("GET", "/subscribers")).body)
        shown.update(next(each for each in found if each["subscriber"] == name))
        return bool(shown["events"]["sent"] >= sent)

    await until(is_sent, f"{sent} events to be told as sent to {name}")
    return shown


async def test_who_subscribes_again_gets_what_follows_there_and_what_waits_is_told(bus: OnBus) -> None:
    publisher, client, topic = await bus.client("app"), await bus.client("reader"), "widgets"
    closed = f"http://127.0.0.1:{free_port()}"
    await client.subscribe(topic, closed, uuid="me", max=10, timeout=0)
    began = int(time.time())
    for number in range(33):
        await publisher.publish(topic, number)

    async def is_told() -> bool:
        return bool((await client.subscription())["events"]["queued"] == 33)

    await until(is_told, "33 events to be told as queued")
    events = (await client.subscription())["events"]
    assert (events["sent"], events["queued"]) == (0, 33)
    assert began - 60 <= events["oldest"] <= time.time() + 60
    [shown] = [each for each in json.loads((await client.ask("GET", "/topics")).body) if each["name"] == topic]
    assert (shown["publisher"], shown["events"]) == ("app", 33)

    # The receiver failed, and is tried again where the client is now.
    await client.subscribe(topic, bus.drained.url, uuid="i:too", max=10, timeout=0)
    await publisher.publish(topic, 33)
    batches = await bus.got(topic, 34)
    numbers = sorted(int(event["url"].rpartition("/")[2]) for batch in batches for event in batch)
    assert numbers == list(range(34))
    assert all(len(batch) <= 10 for batch in batches)
    assert (await client.ask("DELETE", "/subscriber")).status == 204
    await publisher.publish(topic, 34)


async def test_who_was_imported_is_served_as_at_the_old_bus(bus: OnBus, house: House) -> None:
    async with running() as old:
        old.tokens |= {"app--1": "app", "reader--1": "reader"}
        old.topics["gadgets"] = ("app--1", 7)
        old.subscribe("reader--1", "gadgets", callback=bus.drained.url, uuid="i:too", max_events=2, timeout=3_600_000)
        source = {"ROUTEMASTER_URL": old.url, "ROUTEMASTER_ROOT_KEY": OLD_ROOT_KEY}
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services", "import", "routemaster", "--strict",
            env={**os.environ, **house.environment, **ON_BUS, **source}, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert await asyncio.wait_for(child.wait(), SECONDS) == 0
    for number in range(2):
        await bus.known("app--1").publish("gadgets", number)
    assert [len(batch) for batch in await bus.got("gadgets", 2)] == [2]
    [request] = bus.drained.requests()
    assert base64.b64decode(request["headers"]["authorization"].removeprefix("Basic ")) == b"i:too:x"


@pytest.mark.proof
async def test_the_recorded_conversation_over_a_socket(house: House, tmp_path: Path) -> None:
    port = free_port()
    await house.start("api", CARILLON_API_PORT=str(port), **ON_BUS)
    root = BusClient(port, ROOT_KEY)
    for method, path, body, status in OF_ROOT:
        answer = await root.ask(method, path, body)
        assert answer.status == status, answer
    made = await root.ask("POST", "/api_tokens", json.dumps({"name": "demo", "token": secrets.token_hex(8)}).encode())
    client = BusClient(port, json.loads(made.body)["token"])
    for method, path, body, status in CONVERSATION:
        answer = await client.ask(method, path, body)
        assert answer.status == status, answer
        if method != "GET" or status == 204:
            assert answer.body == b"", answer
        else:
            assert answer.headers["content-type"] == "application/json", answer


async def test_the_client_itself_where_ruby_can_be_had(house: House, tmp_path: Path) -> None:
    """With its gem installed, or its folder in RUBYLIB. It insists on TLS, which the API ends itself here."""
    if not await can_load_client():
        pytest.skip("there is no ruby with the gem routemaster-client")
    port, drain, certificate = free_port(), free_port(), tmp_path / "api.pem"
    certificate.write_bytes(Authority().issue("localhost"))
    secured = {"CARILLON_API_CERTIFICATE_FILE": str(certificate), "CARILLON_API_PORT": str(port)}
    async with draining(tmp_path, drain) as drained:
        await house.start("api", **secured, **ON_BUS)
        for service in ("feedback-bus", "worker", "scheduler"):
            await house.start(service, **ON_BUS)
        told = await run_client(f"https://127.0.0.1:{port}", ROOT_KEY, drained.url)
        batches = drained.batches("widgets")
    [topic], [subscription] = told["topics"], told["subscriptions"]
    assert (topic["name"], topic["publisher"]) == ("widgets", "reader-1")
    assert (subscription["topics"], subscription["timeout"]) == (["widgets"], 0)
    assert re.fullmatch(r"my-service--[0-9a-f]{32}", told["made"])
    assert sorted(told["names"]) == ["my-service", "reader"]
    assert "401" in told["refused"]
    assert sorted(event["type"] for [event] in batches) == ["create", "delete", "noop", "update"]


async def can_load_client() -> bool:
    if shutil.which("ruby") is None:
        return False
    child = await asyncio.create_subprocess_exec("ruby", "-e", "require 'routemaster/client'")
    return await asyncio.wait_for(child.wait(), SECONDS) == 0


async def run_client(*arguments: str) -> dict[str, Any]:
    """What the program in Ruby has seen."""
    program = Path(__file__).with_name("routemaster_client.rb")
    child = await asyncio.create_subprocess_exec("ruby", str(program), *arguments, stdout=asyncio.subprocess.PIPE)
    told, _ = await asyncio.wait_for(child.communicate(), 120)
    assert child.returncode == 0
    return dict(json.loads(told))
