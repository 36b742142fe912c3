"""One of everything, at work: jobs that are sent, schedules that are called, events that are delivered. The pages, the
store and what goes out are recorded of it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.receivers import Arrival, Receiver, receiver
from tests.recorded.world import World
from tests.security.tenants import ADMIN, ROOT_KEY, Tenant, basic
from tests.services.api.client import Client, Reply
from tests.services.api.http.pages.addresses import make_some
from tests.waiting import until

SECRETS = {
    "context": "personal-context",
    "payload": "personal-payload",
    "header": "personal-header",
    "query": "personal-query",
    "recipient": "personal-recipient",
    "address": "personal-address",
    "body": "personal-body",
    "key": "secret-of-account",
    "callback": "secret-of-callback",
}
"""A word for each personal or secret field: where it may be seen, `sentinels.py` says."""

SIGNING = "whsec_c2VjcmV0LW9mLXRoZS1hY2NvdW50LW9mLXRlc3Q="


class Stepping(Client):
    """Each request is a second later than the one before."""

    clock: Any = None

    async def exchange(self, *given: Any, **named: Any) -> Reply:
        self.clock.step()
        return await super().exchange(*given, **named)


@dataclass
class Lived:
    """The things that the scenario made."""

    tenant: Tenant
    made: Mapping[str, str]
    arrivals: list[Arrival]
    job: str = ""
    answers: dict[str, Reply] = field(default_factory=dict)


async def live(world: World, folder: Path) -> Lived:
    """Have everything happen once."""
    tenant = await world.tenant()
    app = f"/apps/{tenant.ids['appId']}"
    csv = f"{world.rooms.servers.blobs.bucket}/people.csv"
    await _write(world, csv, b"id\nu1\nu2\nu3\n")
    recipients = csv.replace("people", "recipients")
    await _write(world, recipients, b"recipient\nana@example.com\nbo@example.com\n")
    client = Stepping(world.app, dict(tenant.headers), "203.0.113.9")
    client.clock = world.clock
    admin = Stepping(world.app, ADMIN)
    admin.clock = world.clock
    made = await make_some(
        admin, world.store, "user:admin@example.com", tenant.ids["appId"], recipients, count=2, many=2
    )
    await _ok(client.delete(f"{app}/suppressions/{tenant.ids['suppression']}"))
    await _ok(client.post(f"/bus/subscriptions/{tenant.ids['key']}/pause"))
    await _ok(client_of(client, basic(tenant.headers["authorization"].removeprefix("Bearer "))).delete("/subscriber"))
    for number in range(2):  # so that nothing of theirs is delivered to a host that is not here
        await _ok(admin.post(f"/bus/subscriptions/timing-{number}/pause"))
    async with receiver(folder / "arrivals") as there:
        job = await _push(world, client, app, csv)
        await _schedules(world, client, there)
        await _bus(world, client, there)
        await _accounts(client, app, there)
        arrivals = there.arrivals()
    world.database.database["jobs"].update_many(  # the server's own clock has dated these
        {"rate_chart.0": {"$exists": True}}, {"$set": {"rate_chart": [[world.clock.now(), 10.0]]}}
    )
    return Lived(tenant, dict(made), arrivals, job)


async def _write(world: World, path: str, content: bytes) -> None:
    async def parts() -> Any:
        yield content

    await world.rooms.servers.blobs.write(path, parts())


async def _ok(asked: Any, *statuses: int) -> Any:
    reply = await asked
    assert reply.status in (statuses or (200, 201, 202, 204)), (reply.status, reply.body)
    return reply.json if reply.body else None


async def _push(world: World, client: Client, app: str, csv: str) -> str:
    """A push to all, one to a file, one that nobody gets, one that is stopped."""
    word = {"who": SECRETS["context"]}
    jobs = []
    for more in ({}, {"csvPath": csv, "metadata": {"about": 1}}, {"filters": {"locale": "fr"}}):
        body = {"service": "apns", "context": word, **more}
        jobs.append((await _ok(client.post(f"{app}/jobs?template=like", body)))["id"])
        await world.work("push.")
    stopped = await _ok(client.post(f"{app}/jobs?template=like", {"service": "apns", "metadata": {"n": 1}}))
    await _ok(client.put(f"{app}/jobs/{stopped['id']}/pause"))
    await _ok(client.put(f"{app}/jobs/{stopped['id']}/stop"))
    await world.work("push.")
    return str(jobs[-1])


async def _schedules(world: World, client: Client, there: Receiver) -> None:
    """A call that is accepted, one that is refused for good, and one that is signed."""
    await _ok(client.post("/signing-secrets", {}))
    for name, status in (("well", 200), ("gone", 410)):
        await there.answer(f"/{name}?about={SECRETS['query']}", status)
        data = {
            "url": f"{there.url}/{name}?about={SECRETS['query']}", "headers": {"x-about": SECRETS["header"]},
            "payload": SECRETS["payload"],
        }  # fmt: skip
        at = f"{world.clock.now() + timedelta(seconds=10):%Y-%m-%dT%H:%M:%SZ}"
        schedule = {
            "key": name,
            "schedules": [at],
            "callback": {"type": "http", "data": data},
            "labels": {"team": "push"},
        }
        await _ok(client.post("/schedules", schedule))
    await _ok(
        client.post(
            "/schedules",
            {
                "key": "often",
                "every": 3600,
                "callback": {"type": "rabbitmq", "data": {"queue": "orders", "payload": {"about": SECRETS["payload"]}}},
            },
        )
    )
    soon = f"{world.clock.now() + timedelta(seconds=10):%Y-%m-%dT%H:%M:%SZ}"
    data = {"payload": {"about": SECRETS["payload"]}, "headers": {"x-about": SECRETS["header"]}}
    for name, target in (
        ("queued", {"type": "rabbitmq", "data": {"queue": "orders", **data}}),
        ("exchanged", {"type": "rabbitmq", "data": {"exchange": "orders", "routing_key": "new", **data}}),
        ("told", {"type": "kafka", "data": {"topic": "orders", "key": "order-1", **data}}),
    ):
        await _ok(client.post("/schedules", {"key": name, "schedules": [soon], "callback": target}))
    given: Any = world.rooms.servers
    world.clock.step(30)
    await _fire(world, lambda: len([*there.arrivals(), *given.broker.delivered, *given.stream.delivered]) >= 5)


async def _fire(world: World, is_done: Callable[[], bool]) -> None:
    """Have the clock tick and calls go out until this holds."""

    async def look() -> bool:
        await world.work("sched.", "bus.")
        return is_done()

    async with world.running("scheduler", "clock"):
        await until(look, "what the clock fires")
        await asyncio.sleep(0.2)
        await world.work("sched.", "bus.")


async def _bus(world: World, client: Client, there: Receiver) -> None:
    """A native subscription, signed, and one of Routemaster's; the events of a topic come to both."""
    topic = {"type": "order.paid", "url": "https://example.com/1", "data": {"about": SECRETS["payload"]}}
    native = {
        "callback": f"{there.url}/native?about={SECRETS['query']}",
        "topics": ["paid"],
        "max_events": 2,
        "timeout_ms": 0,
    }
    await _ok(client.put("/bus/topics/paid", {"description": "What is paid."}))
    await _ok(client.put("/bus/subscriptions/signed", native | {"headers": {"x-about": SECRETS["header"]}}))
    await _ok(client.post("/bus/subscriptions/signed/secrets", {"keep_hours": 1}))
    bus = await _ok(client_of(client, basic(ROOT_KEY)).post("/api_tokens", {"name": "rm"}))
    as_client = client_of(client, basic(bus["token"]))
    published = {
        "topics": ["paid"],
        "callback": f"{there.url}/published",
        "uuid": SECRETS["callback"],
        "timeout": 0,
        "max": 5,
    }
    await _ok(as_client.post("/subscriber", published))
    for number in range(3):
        await _ok(client.post("/bus/topics/paid/events", topic | {"url": f"https://example.com/{number}"}))
    async with world.running("feedback-bus", "fanout"):
        await until(lambda: _chunks(world) >= 2, "chunks in both queues")
    world.clock.step(60)
    await _fire(world, lambda: len(there.arrivals()) >= 6 and not _restless(world))


def _restless(world: World) -> int:
    return world.database.database["occurrences"].count_documents({"of.stage": {"$exists": True, "$ne": "resting"}})


def _chunks(world: World) -> int:
    return len(world.database.database["bus_chunks"].distinct("queue"))


def client_of(client: Client, headers: Mapping[str, str]) -> Stepping:
    other = Stepping(client.app, dict(headers), client.peer)
    other.clock = client.clock  # type: ignore[attr-defined]
    return other


async def _accounts(client: Client, app: str, there: Receiver) -> None:
    """An account with a secret, a message by it, and an address that wants none."""
    account = {
        "name": "calls", "kind": "http", "rate": 5, "testRecipient": SECRETS["address"],
        "fields": {"url": f"{there.url}/sms"},
        "secret": {"signingSecret": SIGNING, "authorization": f"Bearer {SECRETS['key']}"},
    }  # fmt: skip
    credential = await _ok(client.post(f"{app}/credentials", account))
    single = {"credential": credential["id"], "to": SECRETS["recipient"], "body": {"text": SECRETS["body"]}}
    await _ok(client.post(f"{app}/messages", single | {"sendAt": "2160-01-01T00:00:00Z"}))
    await _ok(client.post(f"{app}/suppressions", {"channel": "mail", "address": f"{SECRETS['address']}@example.com"}))
