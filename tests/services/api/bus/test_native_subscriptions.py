"""`/bus/subscriptions`, on the real store."""

from datetime import timedelta
from typing import Any

import pytest

from shared.bus.rules.subscriptions import subscription_id
from shared.bus.subscriptions import open_secrets
from shared.runtime.bus_settings import BusSettings
from shared.runtime.settings import ApiSettings
from tests.services.api.bus.conftest import CALLBACK, Bus, is_empty, is_refused
from tests.services.api.client import ADMIN, Client

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

ALL = "/bus/subscriptions"
FILTER = {"types": ["create"], "url_prefix": "https://a", "data": [{"path": "/price", "op": "gt", "value": 10}]}


async def service(bus: Bus) -> Client:
    return bus.house.admin.service((await bus.house.admin.post("/tokens", {"name": "reader"})).json["token"])


def body(bus: Bus, **fields: Any) -> dict[str, Any]:
    return {"callback": CALLBACK, "topics": [bus.topic()]} | fields


async def test_a_subscription_is_made_shown_changed_and_removed(bus: Bus) -> None:
    mine, wanted = await service(bus), body(bus, filter=FILTER, max_events=5, headers={"x-team": "a"})
    made = await mine.put(f"{ALL}/orders", wanted)
    assert made.status == 201, made.body
    assert {name: made.json[name] for name in wanted} == wanted
    assert (made.json["state"], made.json["in_flight"], made.json["max_age_hours"]) == ("active", 8, 72)
    changed = await mine.put(f"{ALL}/orders", {"timeout_ms": 0})
    assert (changed.status, changed.json["timeout_ms"], changed.json["max_events"]) == (200, 0, 5)
    assert "secret" not in changed.json
    shown = await mine.get(f"{ALL}/orders")
    assert (shown.status, shown.json) == (200, changed.json | {"failing_since": None})
    assert is_empty(await mine.delete(f"{ALL}/orders"), 204)
    assert is_refused(await mine.get(f"{ALL}/orders"), 404)
    assert is_refused(await mine.delete(f"{ALL}/orders"), 404)


async def test_a_list_comes_in_pages_by_key(bus: Bus) -> None:
    mine = await service(bus)
    for key in ("c", "a", "b"):
        assert (await mine.put(f"{ALL}/{key}", body(bus))).status == 201
    first = await mine.get(f"{ALL}?limit=2")
    following = await mine.get(first.headers["link"].partition(">")[0][1:])
    assert [each["key"] for each in first.json] == ["a", "b"]
    assert [each["key"] for each in following.json] == ["c"]
    assert "link" not in following.headers


async def test_a_key_is_of_its_namespace_alone(bus: Bus) -> None:
    mine, other = await service(bus), await service(bus)
    assert (await mine.put(f"{ALL}/orders", body(bus))).status == 201
    for method, path in (("GET", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/secrets"), ("DELETE", "")):
        assert is_refused(await other.send(method, f"{ALL}/orders{path}"), 404), path
    assert (await other.get(ALL)).json == []
    assert is_refused(await other.get(f"{ALL}?namespace=user:boss@example.com"), 403)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("callback", {"callback": "http://app.example.com/"}),
        ("callback", {"callback": "https://10.0.0.1/"}),
        ("callback", {"callback": None}),
        ("topics", {"topics": ["A topic"]}),
        ("max_events", {"max_events": 0}),
        ("in_flight", {"in_flight": 33}),
        ("timeout_ms", {"timeout_ms": 3_600_001}),
        ("contact", {"contact": "nobody"}),
        ("uuid", {"uuid": "\n"}),
        ("headers.Host", {"headers": {"Host": "x"}}),
        ("filter.data[0].path", {"filter": {"data": [{"path": "price", "op": "eq", "value": 1}]}}),
        ("filter.data[0].value", {"filter": {"data": [{"path": "/price", "op": "in", "value": 1}]}}),
        ("filter.data[0].value", {"filter": {"data": [{"path": "/price", "op": "in", "value": [10**30]}]}}),
        ("topic", {"topic": "x"}),
    ],
)
async def test_bad_input_is_refused_by_its_field_and_stores_nothing(bus: Bus, field: str, wrong: Any) -> None:
    mine = await service(bus)
    refused = await mine.put(f"{ALL}/orders", body(bus, **wrong))
    assert is_refused(refused, 422), refused.body
    assert field in refused.body.decode()
    assert (await mine.get(ALL)).json == []


@pytest.mark.parametrize("dots", ["%2E", "%2E%2E"])
async def test_what_clients_leave_out_of_a_path_is_no_key_and_no_topic(bus: Bus, dots: str) -> None:
    mine = await service(bus)
    refused = [
        await mine.put(f"{ALL}/{dots}", body(bus)),
        await mine.put(f"{ALL}/orders", body(bus, topics=[dots.replace("%2E", ".")])),
        await mine.put(f"/bus/topics/{dots}", {"description": "x"}),
        await mine.post(f"/bus/topics/{dots}/events", {"type": "update", "url": "https://x.example/1"}),
    ]
    assert all(is_refused(answer, 422) and b"nor " in answer.body for answer in refused), refused
    assert (await mine.get(ALL)).json == []


async def test_a_new_one_needs_a_callback(bus: Bus) -> None:
    refused = await (await service(bus)).put(f"{ALL}/orders", {"topics": [bus.topic()]})
    assert is_refused(refused, 422) and b"callback" in refused.body


async def test_one_is_paused_and_resumed(bus: Bus) -> None:
    mine = await service(bus)
    assert (await mine.put(f"{ALL}/orders", body(bus))).status == 201
    paused = await mine.post(f"{ALL}/orders/pause", x_carillon_reason="a move")
    assert (paused.json["state"], paused.json["reason"]) == ("paused", "a move")
    resumed = await mine.post(f"{ALL}/orders/resume")
    assert (resumed.json["state"], resumed.json["reason"]) == ("active", "")


async def test_a_new_secret_signs_beside_the_one_before(bus: Bus) -> None:
    mine = await service(bus)
    first = (await mine.put(f"{ALL}/orders", body(bus))).json["secret"]
    second = (await mine.post(f"{ALL}/orders/secrets", {"keep_hours": 1})).json["secret"]
    assert await signing(bus, mine) == (second, first)
    third = (await mine.post(f"{ALL}/orders/secrets", {"keep_hours": 0})).json["secret"]
    assert await signing(bus, mine) == (third,)
    assert len({first, second, third}) == 3
    assert is_refused(await mine.post(f"{ALL}/orders/secrets", {"keep_hours": 169}), 422)
    assert "secret" not in (await mine.get(f"{ALL}/orders")).json


async def test_who_rotates_again_cuts_off_no_receiver(bus: Bus) -> None:
    mine = await service(bus)
    made = [(await mine.put(f"{ALL}/orders", body(bus))).json["secret"]]
    again = [await mine.post(f"{ALL}/orders/secrets", {"keep_hours": hours}) for hours in (24, 1, 24, 24)]
    made += [answer.json["secret"] for answer in again]
    assert await signing(bus, mine) == tuple(reversed(made))
    namespace = (await mine.get("/whoami")).json["namespace"]
    stored = await bus.house.store.bus_subscriptions.get(subscription_id(namespace, "orders"))
    assert stored is not None
    ends = [secret.until for secret in stored.secrets if secret.until is not None]
    assert ends[0] == ends[1] < ends[2] - timedelta(hours=22)  # none signs for longer than it was to
    assert is_refused(await mine.post(f"{ALL}/orders/secrets", {"keep_hours": 24}), 409)
    last = (await mine.post(f"{ALL}/orders/secrets", {"keep_hours": 0})).json["secret"]
    assert await signing(bus, mine) == (last,)


async def test_beyond_a_limit_nothing_is_made(bus: Bus) -> None:
    app = bus.house.build(ApiSettings(first_admin=ADMIN), BusSettings(topics_per_subscription=1))
    mine = Client(app, (await service(bus)).headers, "203.0.113.9")
    refused = await mine.put(f"{ALL}/orders", body(bus, topics=[bus.topic(), bus.topic()]))
    assert is_refused(refused, 422) and b"topics" in refused.body
    assert (await mine.get(ALL)).json == []


async def test_a_viewer_sees_no_credentials_and_the_audit_neither(bus: Bus) -> None:
    hushed = body(
        bus,
        headers={"authorization": "hush-1"},
        callback=f"{CALLBACK}?hush-4",
        uuid="hush-2",
        contact="hush-3@example.com",
    )
    mine = await service(bus)
    assert (await mine.put(f"{ALL}/orders", hushed)).status == 201
    namespace = (await mine.get("/whoami")).json["namespace"]
    roles = {f"namespace/{namespace}": "viewer"}
    made = await bus.house.admin.post("/tokens", {"name": "viewer", "roles": roles})
    assert made.status == 201, made.body
    viewer = bus.house.admin.service(made.json["token"])
    seen = await viewer.get(f"{ALL}/orders?namespace={namespace}")
    assert (seen.status, seen.json["redacted"]) == (200, True)
    assert b"hush" not in seen.body
    assert is_refused(await viewer.post(f"{ALL}/orders/pause?namespace={namespace}"), 403)
    records = await bus.house.store._database["audit"].find({"on.namespace": namespace}).to_list()
    assert "subscription.replace" in {record["act"] for record in records}
    assert "hush" not in str(records)


async def signing(bus: Bus, mine: Client) -> tuple[str, ...]:
    """The secrets that sign now, the newest first."""
    namespace = (await mine.get("/whoami")).json["namespace"]
    stored = await bus.house.store.bus_subscriptions.get(subscription_id(namespace, "orders"))
    assert stored is not None
    return open_secrets(bus.house.servers.key_ring, stored, await bus.house.servers.time.now())
