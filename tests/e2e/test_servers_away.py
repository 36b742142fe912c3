"""What still works where MongoDB alone answers: a real API process whose other servers' addresses lead nowhere."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from services.embedded.processes import free_port
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.drivers.secrets import fresh_key
from shared.jobs.rules.jobs import JobStatus
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import Credential
from shared.messages.rules.jobs import MESSAGE_SERVICE, MessageOptions, options_as_fields
from shared.messages.rules.ledger import Message, MessageState, entry_id, write_ahead
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.runtime.configuration import load
from tests.conftest import _random_name, _with_path, drop_mongo_database
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer
from tests.providers.callbacks import CREDENTIAL, PUBLIC_URL, TOKEN, twilio
from tests.stack import Endpoints
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

NOWHERE = "127.0.0.1:1"
"""Nobody listens on this port."""

IN_SANDBOX = {"name": "play", "kind": "sandbox", "testRecipient": "ana@example.com"}


@dataclass
class Lonely:
    """A process of the API, and the store that it shares with this test."""

    house: House
    customer: Customer
    health: Customer

    @property
    def app_id(self) -> str:
        return self.house.app_id

    async def ready(self) -> tuple[int, Any]:
        return await self.health.call("GET", "/readyz")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lonely]:
    """One process for all tests: each of them has an app of its own."""
    name, folder = _random_name(), tmp_path_factory.mktemp("lonely")
    store_url = _with_path(stack.mongo_url, name)
    port, health = free_port(), free_port()
    environment = {
        "CARILLON_STORE_URL": store_url,
        "CARILLON_BROKER_URL": f"amqp://guest:guest@{NOWHERE}/away",
        "CARILLON_BROKER_MANAGEMENT_URL": f"http://guest:guest@{NOWHERE}",
        "CARILLON_STREAM_URL": f"kafka://{NOWHERE}",
        "CARILLON_AUDIENCE_URL": f"postgresql://carillon:carillon@{NOWHERE}/push",
        "CARILLON_BLOBS_ENDPOINT_URL": f"http://{NOWHERE}",
        "CARILLON_BLOBS_REGION": "us-east-1",
        "CARILLON_BLOBS_ACCESS_KEY": "any",
        "CARILLON_BLOBS_SECRET_KEY": "any",
        "CARILLON_API_PORT": str(port),
        "CARILLON_API_FIRST_ADMIN": "admin@example.com",
        "CARILLON_API_PUBLIC_URL": PUBLIC_URL,
        "CARILLON_API_ALLOWED_HOSTS": "127.0.0.1",
        "CARILLON_HEALTH_PORT": str(health),
        "CARILLON_PROVIDERS_SECRET_KEYS": fresh_key(),
        "CARILLON_PROVIDERS_SANDBOX_FILE": str(folder / "sandbox.ndjson"),
        "CARILLON_SHUTDOWN_READINESS_SECONDS": "0",
        "CARILLON_LOGS_FORMAT": "json",
    }
    servers = Servers(load(environment), service="test")
    await servers.store.setup()
    house = House(environment, folder, "", Rooms(servers))
    try:
        await house.start("api")
        yield Lonely(house, Customer(port), Customer(health))
    finally:
        await house.end()
        await servers.close()
        drop_mongo_database(stack.mongo_url, name)


@pytest_asyncio.fixture(loop_scope="module")
async def lonely(api: Lonely) -> Lonely:
    """The API, and an app of the test's own."""
    house = api.house
    house.new_app()
    name = {"name": house.app, "bundleId": f"com.example.{house.app}"}
    status, made = await api.customer.call("POST", "/apps", name)
    assert status == 201, made
    house.app_id = made["id"]
    return api


@pytest.mark.proof
async def test_the_api_is_ready_with_mongodb_alone_and_tells_what_is_away(lonely: Lonely) -> None:
    status, body = await lonely.ready()
    assert (status, body["ready"]) == (200, True), body
    assert set(body["failing"]) == {"broker", "push database"}

    async def told() -> Any:
        _, overview = await lonely.customer.call("GET", "/overview")
        return [sign for sign in overview["signs"] if sign["name"] == "EngineFailing"] and overview

    overview = await until(told, "the overview to tell it")
    assert overview["verdict"] == "ailing"
    [process] = overview["processes"]
    assert process["failingChecks"] == ["broker", "push database"]
    seen = [sign["seen"] for sign in overview["signs"] if sign["name"] == "EngineFailing"]
    assert seen == ["the check of broker fails in api", "the check of push database fails in api"]
    assert [part["what"] for part in overview["unknown"]] == ["queues"]


@pytest.mark.proof
async def test_jobs_are_seen_held_and_stopped(lonely: Lonely) -> None:
    chosen = options_as_fields(MessageOptions(channel=Channel.OTHER, recipient_column="recipient", batch_size=20))
    credential = await lonely.customer.call(
        "POST",
        f"/apps/{lonely.app_id}/credentials",
        IN_SANDBOX,
    )
    assert credential[0] == 201, credential
    of_messages = {
        "service": MESSAGE_SERVICE,
        "credential_id": credential[1]["id"],
        "table_kind": "sandbox",
        "options": chosen,
        "csv_path": "carillon/people.csv",
    }
    for fields in ({}, of_messages):
        job, _ = await lonely.house.jobs.start(lonely.house.job(**fields))
        path = f"/apps/{lonely.app_id}/jobs/{job.id}"
        assert (await lonely.customer.call("GET", path))[0] == 200
        for move, status in (("pause", "paused"), ("resume", ""), ("pause", "paused"), ("stop", "stopped")):
            answer = await lonely.customer.call("PUT", f"{path}/{move}")
            assert (answer[0], answer[1]["status"]) == (200, status), answer
        stored = await lonely.house.servers.store.jobs.get(job.key)
        assert stored is not None
        assert stored.status is JobStatus.STOPPED
    assert (await lonely.customer.call("GET", f"/apps/{lonely.app_id}/jobs"))[0] == 200


@pytest.mark.proof
async def test_links_unsubscribe_and_callbacks_of_providers_are_heard(lonely: Lonely) -> None:
    store, links = lonely.house.servers.store, lonely.house.rooms.messages.links
    [url] = links.urls_of(lonely.app_id, Channel.MAIL, ["ann@example.com"])
    path = url.removeprefix(PUBLIC_URL)
    form = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
    assert await post(lonely, path, b"List-Unsubscribe=One-Click", form) == 200
    assert len(await store.suppressions.page(lonely.app_id, limit=10)) == 1

    sealed = lonely.house.servers.key_ring.seal({"authToken": TOKEN}, CREDENTIAL)
    at = lonely.house.servers.clock.now()
    credential = Credential(
        id=CREDENTIAL, app_id=lonely.app_id, name="sms", kind="twilio", fields={}, rate=10, max_in_flight=20,
        test_recipient="+6591234567", created_by="a", created_at=at, updated_at=at, secret=sealed, fingerprint="f",
    )  # fmt: skip
    assert await store.credentials.add(credential)
    blank = Message(id=entry_id("callbacks", 0, 1), app_id=lonely.app_id, credential_id=CREDENTIAL, to="+6591234567")
    entry = write_ahead(blank, owner="w1", until=at)
    assert await store.messages.fold([EntryChange(None, entry)]) is WriteResult.DONE
    key = f"{entry.id}~1"
    told = twilio({"MessageSid": "SM1", "MessageStatus": "delivered", "To": "+6591234567"}, key=key)
    assert await post(lonely, f"/callbacks/{CREDENTIAL}/{key}", told.body, dict(told.headers)) == 204
    heard = await store.messages.get(entry.id)
    assert heard is not None
    assert heard.state is MessageState.DELIVERED


async def test_a_route_that_needs_another_server_names_it(lonely: Lonely) -> None:
    app = f"/apps/{lonely.app_id}"
    template = {"name": "like", "locale": "en", "body": {"alert": "Hi"}, "defaults": {}}
    assert (await lonely.customer.call("POST", f"{app}/templates", template))[0] == 201
    assert (await lonely.customer.call("POST", f"{app}/credentials", IN_SANDBOX))[0] == 201
    asked: list[tuple[str, str, Any, str]] = [
        ("GET", "/queues", None, "RabbitMQ"),
        ("POST", f"{app}/jobs?template=like", {"service": "apns", "filters": {"locale": "en"}}, "PostgreSQL"),
        ("POST", f"{app}/jobs?template=like", {"credential": "play", "csvPath": "carillon/a.csv"}, "the store"),
        ("POST", "/bus/topics/orders/events", {"type": "create", "url": "https://a.b/1"}, "Kafka"),
    ]
    for method, path, body, server in asked:
        status, problem = await lonely.customer.call(method, path, body)
        assert status == 503, (path, problem)
        assert problem["detail"].startswith(server), problem
        assert problem["detail"].endswith("did not answer; what was asked may have happened")
        assert NOWHERE not in str(problem)


async def post(lonely: Lonely, path: str, body: bytes, headers: dict[str, str]) -> int:
    """The status of the answer to a stranger."""

    def ask() -> int:
        request = urllib.request.Request(lonely.customer.base + path, data=body, method="POST", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    return await asyncio.to_thread(ask)
