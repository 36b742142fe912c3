"""`/pulse` and `/health`, as monitors and load balancers ask."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from services.api.bus.routemaster import api_tokens
from services.api.http import health, identity
from shared.accounts.rules.callers import Token
from shared.core.errors import Unavailable
from shared.runtime.bus_settings import BusSettings
from tests.services.api.bus.conftest import Bus, is_empty, is_refused, subscription
from tests.services.api.client import Client
from tests.services.api.conftest import ROOT_KEY, DeliveringStream

CLIENT_SECONDS = 5
"""How long Routemaster's client waits for an answer."""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


class AwayStream(DeliveringStream):
    """Does not answer."""

    async def ping(self) -> None:
        raise Unavailable("the log is away")


class HangingStream(DeliveringStream):
    """Answers too late."""

    async def ping(self) -> None:
        await asyncio.sleep(3_600)


async def test_a_well_bus_has_a_pulse(bus: Bus) -> None:
    for caller in (bus.root, await bus.client()):
        assert is_empty(await caller.get("/pulse"), 204)


async def test_without_its_log_it_has_none(bus: Bus) -> None:
    away = AwayStream.__new__(AwayStream)
    app = bus.house.build(BusSettings(root_key=ROOT_KEY), stream=away)
    assert is_refused(await Client(app).client(ROOT_KEY).get("/pulse"), 500)


async def test_a_log_that_hangs_has_none_before_clients_stop_waiting(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    assert identity.PATIENCE_SECONDS <= 4 < CLIENT_SECONDS
    monkeypatch.setattr(health, "PATIENCE_SECONDS", 0.1)
    app = bus.house.build(BusSettings(root_key=ROOT_KEY), stream=HangingStream.__new__(HangingStream))
    assert is_refused(await Client(app).client(ROOT_KEY).get("/pulse"), 500)


async def test_a_store_that_hangs_is_told_before_clients_stop_waiting(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = asyncio.Event()

    async def hang(digests: Sequence[str]) -> dict[str, Token]:
        await answers.wait()
        return {}

    client = await bus.client()
    monkeypatch.setattr(bus.house.store.tokens, "with_digests", hang)
    monkeypatch.setattr(identity, "PATIENCE_SECONDS", 0.1)
    for path in ("/pulse", "/topics", "/subscribers"):
        assert is_refused(await client.get(path), 503), path
    answers.set()


async def test_scaling_tells_batches_that_are_due(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    client, topic = await bus.client(), bus.topic()
    assert is_empty(await client.post("/subscriber", subscription(topic, max=10)), 204)
    settings = BusSettings(root_key=ROOT_KEY, scaling_threshold=4)

    async def asked(**headers: str) -> tuple[int, bytes, float]:
        root = Client(bus.house.build(settings)).client(ROOT_KEY)
        began = time.monotonic()
        reply = await root.get("/pulse/scaling", **headers)
        return reply.status, reply.body, time.monotonic() - began

    told = await asked(accept="application/json")
    assert told[:2] == (200, b'{"due":0,"threshold":4}')
    with monkeypatch.context() as patched:
        patched.setattr(api_tokens, "LATE_SECONDS", 3_600.0)
        assert (await asked())[:2] == (204, b"")
    wake_up = {"owner": {"$regex": "^bus/"}, "of.full": 10}
    soon, later = datetime.now(UTC) + timedelta(seconds=0.5), datetime.now(UTC) + timedelta(hours=1)
    occurrences = bus.house.store._database["occurrences"]
    for due, expected in ((later, 0), (soon, 4)):
        await occurrences.update_many(wake_up, {"$set": {"of.waiting": 31, "fires_at": due}})
        assert (await asked(accept="application/json"))[:2] == (200, b'{"due":%d,"threshold":4}' % expected)
    status, body, seconds = await asked()
    assert (status, body) == (204, b"")
    assert seconds >= 1


async def test_health_is_for_who_shows_no_credentials(bus: Bus) -> None:
    stranger = Client(bus.root.app)
    assert (await stranger.get("/health")).body == b"{}"
    for path in ("/health/ping", "/health/ping.json"):
        reply = await stranger.get(path)
        assert (reply.status, reply.headers["content-type"], list(reply.json)) == (200, "application/json", ["pong"])
    for path in ("/health", "/health/ping", "/health/ping.json"):
        for caller in (bus.root, await bus.client(), bus.root.client("nobody")):
            assert is_refused(await caller.get(path), 401)
