"""Whose token is revoked has nothing delivered any more."""

from collections.abc import Sequence
from typing import Any

import pytest

from services.api.http import identity
from shared.accounts.rules.callers import Caller
from tests.services.api.bus.conftest import CALLBACK, Bus, event, is_empty, is_refused, subscription

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def test_subscriptions_of_a_revoked_token_are_paused(bus: Bus) -> None:
    made = (await bus.house.admin.post("/tokens", {"name": "billing"})).json
    assert is_empty(await bus.root.client(made["token"]).post("/subscriber", subscription(bus.topic())), 204)
    subscriptions = bus.house.store._database["bus_subscriptions"]
    owned = {"namespace": f"token:{made['id']}"}
    [before] = await subscriptions.find(owned).to_list()
    assert (await bus.house.admin.delete(f"/tokens/{made['id']}")).status == 204
    [after] = await subscriptions.find(owned).to_list()
    assert (before["state"], after["state"]) == ("active", "paused")
    assert after["reason"]


async def test_those_of_a_namespace_that_others_share_go_on(bus: Bus) -> None:
    body = {"name": "billing", "namespace": f"token:shared-{bus.topic()}"}
    first, second = [(await bus.house.admin.post("/tokens", body)).json for _ in range(2)]
    assert is_empty(await bus.root.client(first["token"]).post("/subscriber", subscription(bus.topic())), 204)
    assert (await bus.house.admin.delete(f"/tokens/{first['id']}")).status == 204
    subscriptions = bus.house.store._database["bus_subscriptions"]
    [after] = await subscriptions.find({"namespace": body["namespace"]}).to_list()
    assert after["state"] == "active"
    assert is_empty(await bus.root.client(second["token"]).delete("/subscriber"), 204)


@pytest.mark.parametrize("what", ["subscribe", "publish"])
async def test_who_was_taken_out_while_its_body_came_is_refused(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    client, topic, looks = await bus.client(), bus.topic(), 0
    look_up = identity.Directory.client

    async def look_up_and_lose(directory: identity.Directory, readings: Sequence[str]) -> tuple[Caller, str]:
        nonlocal looks
        looks += 1
        if looks == 2:
            await bus.house.store._database["tokens"].delete_many({"scope": "bus"})
        return await look_up(directory, readings)

    monkeypatch.setattr(identity, "_TRUSTED_SECONDS", -1.0)  # as if the body had taken longer
    monkeypatch.setattr(identity.Directory, "client", look_up_and_lose)
    if what == "subscribe":
        reply = await client.post("/subscriber", subscription(topic))
    else:
        reply = await client.post(f"/topics/{topic}", event())
    monkeypatch.undo()
    assert is_refused(reply, 401)
    assert topic not in await bus.topics()


@pytest.mark.parametrize("what", ["subscriptions/k", "topics/{topic}", "topics/{topic}/events"])
async def test_who_was_taken_out_while_its_body_came_is_refused_below_bus_too(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    made, topic, looks = (await bus.house.admin.post("/tokens", {"name": "slow"})).json, bus.topic(), 0
    client, look_up = bus.house.admin.service(made["token"]), identity.Directory.caller

    async def look_up_and_lose(directory: identity.Directory, *shown: Any, **options: Any) -> Caller:
        nonlocal looks
        looks += 1
        if looks == 2:
            await bus.house.store._database["tokens"].delete_many({"name": "slow"})
        return await look_up(directory, *shown, **options)

    monkeypatch.setattr(identity, "_TRUSTED_SECONDS", -1.0)  # as if the body had taken longer
    monkeypatch.setattr(identity.Directory, "caller", look_up_and_lose)
    path = f"/bus/{what.format(topic=topic)}"
    body = {"callback": CALLBACK, "topics": [topic]} if "subscriptions" in what else {}
    reply = await (client.post(path, event()) if what.endswith("events") else client.put(path, body))
    monkeypatch.undo()
    assert (reply.status, looks) == (401, 2), reply.body
    assert topic not in await bus.topics()


async def test_no_other_secret_stands_for_a_token_of_the_bus(bus: Bus) -> None:
    secret = (await bus.root.post("/api_tokens", {"name": "alice"})).json["token"]
    assert (await bus.root.client(secret).get("/topics")).status == 200
    # Its digest as one of the bus is the digest of this text as another token's.
    assert is_refused(await bus.root.client(f"carillon bus\0{secret}").get("/topics"), 401)


async def test_the_audit_names_the_clients_own_namespace_whatever_it_asks_for(bus: Bus) -> None:
    client, topic = await bus.client(), bus.topic()
    assert is_empty(await client.post("/subscriber?namespace=user:ceo@example.com", subscription(topic)), 204)
    audit = bus.house.store._database["audit"]
    assert await audit.count_documents({"on.namespace": "user:ceo@example.com"}) == 0
    assert await audit.count_documents({"act": "subscription.replace"}) > 0
