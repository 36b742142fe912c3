"""The bus as its users know it who type commands: every process is real, every step is `carillon …`, and what counts is
what a receiver has got."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from carillon.signing import verify
from services.embedded.processes import free_port
from tests.cli.conftest import Program
from tests.e2e.house import House
from tests.receivers import Arrival, Receiver, receiver
from tests.services.api.client import ADMIN
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.native]

PATH = "/orders"
ON_BUS = {
    "CARILLON_API_FIRST_ADMIN": ADMIN,
    "CARILLON_BUS_ALLOW_HTTP": "true",
    "CARILLON_CALLBACKS_ALLOWED_NETWORKS": "127.0.0.0/8",
    "CARILLON_PROVIDERS_SECRET_KEYS": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
}


@dataclass
class Typist:
    """Who types commands, and the receiver beside them."""

    program: Program
    receiver: Receiver

    async def type(self, *words: str) -> str:
        """What the command prints."""
        return (await self.program.done(*words)).out.strip()

    async def publish(self, number: int) -> None:
        url = f"https://shop.example.com/orders/{number}"
        assert "Published" in await self.type("publish", "orders", "--type", "create", "--url", url)

    async def got(self, count: int) -> list[Arrival]:
        """All calls, once there are so many."""
        await until(lambda: len(self.receiver.arrivals(PATH)) >= count, f"{count} calls")
        return self.receiver.arrivals(PATH)


@pytest.fixture
async def typist(house: House, tmp_path: Path) -> AsyncIterator[Typist]:
    port, program = free_port(), Program(tmp_path)
    program.keep(f"http://127.0.0.1:{port}")
    async with receiver(tmp_path / "arrivals") as opened:
        await house.start("api", CARILLON_API_PORT=str(port), **ON_BUS)
        for service in ("feedback-bus", "worker", "scheduler"):
            await house.start(service, **ON_BUS)
        yield Typist(program, opened)


REFUSED, OWN = "/refused", "/own"


async def test_from_a_topic_to_a_dead_letter(typist: Typist) -> None:
    callback = ("--callback", typist.receiver.url + PATH)
    await typist.type("topics", "put", "orders", "--description", "What was ordered")
    first_secret = await typist.type(
        "subscriptions", "put", "shop", *callback, "--topic", "orders", "--body", '{"max_attempts": 1, "timeout_ms": 0}'
    )
    # A schedule whose target refuses it ends in an event of Carillon's own.
    told = ("--callback", typist.receiver.url + OWN, "--topic", "carillon_schedules", "--body", '{"timeout_ms": 0}')
    await typist.type("subscriptions", "put", "dead", *told)
    await typist.receiver.answer(REFUSED, 500)
    target = {"type": "http", "data": {"url": typist.receiver.url + REFUSED, "payload": 1}}
    once = json.dumps({"callback": target, "retry": {"attempts": 1}})
    soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat(timespec="seconds")
    await typist.type("schedules", "create", "report", "--at", soon, "--body", once)

    await typist.publish(1)
    [call] = await typist.got(1)
    assert [event["url"][-8:] for event in json.loads(call.body)] == ["orders/1"]
    assert verify(call.body.encode(), call.headers, first_secret) == call.id

    await typist.type("subscriptions", "pause", "shop")
    await typist.publish(2)

    async def is_collected() -> bool:
        return bool(json.loads(await typist.type("subscriptions", "health", "shop", "--json"))["queued"] == 1)

    await until(is_collected, "an event to be told as queued")
    second_secret = await typist.type("subscriptions", "secret", "shop")
    assert len(typist.receiver.arrivals(PATH)) == 1
    await typist.type("subscriptions", "resume", "shop")
    [_, call] = await typist.got(2)
    assert second_secret != first_secret
    for secret in (first_secret, second_secret):
        assert verify(call.body.encode(), call.headers, secret) == call.id

    await typist.receiver.answer(PATH, 200, 500)
    await typist.publish(3)
    refused = (await typist.got(3))[-1]

    async def is_dead() -> bool:
        return refused.id in await typist.type("dead-letters", "list", "--key", "shop", "-q")

    await until(is_dead, "the dead letter")
    await typist.type("dead-letters", "retry", refused.id)
    call = (await typist.got(4))[-1]
    assert (call.id, call.body) == (refused.id, refused.body)
    assert typist.receiver.arrivals(PATH) == await typist.got(4)

    await until(lambda: typist.receiver.arrivals(OWN), "the event of the schedule")
    [event] = json.loads(typist.receiver.arrivals(OWN)[0].body)
    assert (event["topic"], event["type"]) == ("carillon_schedules", "schedule.dead")
    assert (event["data"]["schedule"], event["data"]["attempts"]) == ("report", 1)
