"""`/bus/topics`: who makes, describes, gives away and deletes topics."""

import secrets

import pytest

from shared.bus.rules.events import NOTICES
from shared.runtime.bus_settings import BusSettings
from tests.services.api.bus.conftest import CALLBACK, Bus, event, is_empty, is_refused, subscription
from tests.services.api.client import Client
from tests.services.api.conftest import House

pytestmark = [pytest.mark.bus_routes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


def fresh_name(prefix: str = "orders.v1-") -> str:
    return prefix + secrets.token_hex(6)


async def test_a_topic_is_made_described_shown_and_deleted(house: House) -> None:
    alice, name = await house.service(), fresh_name()
    assert is_refused(await alice.get(f"/bus/topics/{name}"), 404)
    made = await alice.put(f"/bus/topics/{name}", {"description": "What is ordered."})
    assert (made.status, made.json["description"], made.json["events"]) == (201, "What is ordered.", 0)
    owner = (await alice.get("/whoami")).json["namespace"]
    assert (made.json["name"], made.json["owner"]) == (name, owner)
    assert (await alice.put(f"/bus/topics/{name}", {})).json == made.json
    changed = await alice.put(f"/bus/topics/{name}", {"description": ""})
    assert (changed.status, changed.json["description"]) == (200, "")
    assert (await alice.get(f"/bus/topics/{name}")).json == changed.json
    assert is_empty(await alice.delete(f"/bus/topics/{name}"), 204)
    assert is_refused(await alice.delete(f"/bus/topics/{name}"), 404)


async def test_anothers_topic_is_neither_described_nor_deleted(house: House) -> None:
    alice, bob, name = await house.service(), await house.service(), fresh_name()
    made = await alice.put(f"/bus/topics/{name}", {"description": "mine"})
    assert is_refused(await bob.put(f"/bus/topics/{name}", {"description": "yours"}), 403)
    assert is_refused(await bob.delete(f"/bus/topics/{name}"), 403)
    assert (await bob.get(f"/bus/topics/{name}")).json == made.json


async def test_a_topic_that_others_subscribe_to_is_deleted_by_admins(house: House) -> None:
    alice, bob, name = await house.service(), await house.service(), fresh_name()
    await bob.put("/bus/subscriptions/k", {"callback": CALLBACK, "topics": [name]})
    await alice.put("/bus/subscriptions/k", {"callback": CALLBACK, "topics": [name]})
    await alice.put(f"/bus/topics/{name}", {})
    refused = await alice.delete(f"/bus/topics/{name}")
    assert is_refused(refused, 409)
    assert refused.json["reason"].startswith("1 subscription of others has")
    assert (await bob.get("/bus/subscriptions/k")).json["topics"] == [name]
    assert is_empty(await house.admin.delete(f"/bus/topics/{name}"), 204)
    assert (await bob.get("/bus/subscriptions/k")).json["topics"] == []


async def test_only_its_owner_subscribes_to_a_private_topic(house: House) -> None:
    alice, bob, name = await house.service(), await house.service(), fresh_name()
    ours, theirs = {"callback": CALLBACK, "topics": [name]}, {"callback": CALLBACK, "topics": [fresh_name(), name]}
    await bob.put("/bus/subscriptions/k", ours)
    await alice.put(f"/bus/topics/{name}", {"description": "kept"})
    refused = await alice.put(f"/bus/topics/{name}", {"private": True})
    assert is_refused(refused, 409)
    assert refused.json["reason"].startswith(f"1 subscription of others has the topic {name}")
    await bob.put("/bus/subscriptions/k", {"topics": []})
    made = await alice.put(f"/bus/topics/{name}", {"private": True})
    assert (made.status, made.json["private"], made.json["description"]) == (200, True, "kept")
    assert (await alice.put("/bus/subscriptions/k", ours)).status == 201
    replay = {"from": "2020-01-01T00:00:00Z", "topics": [name]}
    for reply in (
        await bob.put("/bus/subscriptions/k", theirs),
        await bob.put("/bus/subscriptions/new", theirs),
        await house.admin.put("/bus/subscriptions/new", theirs),
        await bob.post("/bus/subscriptions/k/replays", replay),
    ):
        assert is_refused(reply, 403)
        assert (reply.json["field"], name in reply.json["reason"]) == ("topics", True)
    assert (await bob.get("/bus/subscriptions/k")).json["topics"] == []
    assert is_refused(await bob.get("/bus/subscriptions/new"), 404)
    assert is_refused(await bob.put(f"/bus/topics/{name}", {"private": False}), 403)
    owner = (await bob.get("/whoami")).json["namespace"]
    for body, status in (({"owner": None}, 422), ({"owner": owner}, 409)):
        assert is_refused(await house.admin.put(f"/bus/topics/{name}", body), status)
    assert (await alice.put(f"/bus/topics/{name}", {"private": False})).json["private"] is False
    assert (await bob.put("/bus/subscriptions/k", ours)).status == 200


async def test_whom_a_topic_belongs_to_is_no_address_for_others(house: House, bus: Bus) -> None:
    name, address = bus.topic(), "owner@example.com"
    assert (await house.admin.post("/users", {"email": address})).status == 201
    owner = house.admin.someone(address)
    assert (await owner.put(f"/bus/topics/{name}", {})).json["owner"] == f"user:{address}"
    token = await bus.client()
    published = {each["name"]: each["publisher"] for each in (await token.get("/topics")).json}
    assert published[name] == "user"
    assert (await bus.topics())[name] == address
    for path in ("/bus/topics", f"/bus/topics/{name}"):
        shown = await (await house.service()).get(path)
        assert address not in shown.body.decode()
        assert address in (await owner.get(path)).body.decode()
        assert address in (await house.admin.get(path)).body.decode()


async def test_an_admin_says_whose_a_topic_is_and_frees_it(house: House) -> None:
    alice, bob, name = await house.service(), await house.service(), fresh_name()
    theirs = (await bob.get("/whoami")).json["namespace"]
    await alice.put(f"/bus/topics/{name}", {"description": "kept"})
    assert is_refused(await alice.put(f"/bus/topics/{name}", {"owner": theirs}), 403)
    moved = await house.admin.put(f"/bus/topics/{name}", {"owner": theirs})
    assert (moved.json["owner"], moved.json["description"]) == (theirs, "kept")
    assert is_refused(await alice.put(f"/bus/topics/{name}", {}), 403)
    freed = await house.admin.put(f"/bus/topics/{name}", {"owner": None})
    assert (freed.json["owner"], freed.json["description"]) == (None, "kept")
    assert (await alice.put(f"/bus/topics/{name}", {})).json["owner"] != theirs
    assert is_empty(await house.admin.delete(f"/bus/topics/{name}"), 204)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"description": "x" * 1_001}, "description"),
        ({"description": 7}, "description"),
        ({"owner": "nobody"}, "owner"),
        ({"owner": ""}, "owner"),
        ({"events": 1}, "events"),
        ({"private": "yes"}, "private"),
        ({"private": True, "owner": None}, "private"),
    ],
)
async def test_a_bad_body_names_its_field_and_makes_nothing(house: House, body: object, field: str) -> None:
    name = fresh_name()
    reply = await house.admin.put(f"/bus/topics/{name}", body)
    assert is_refused(reply, 422)
    assert reply.json["field"] == field
    assert is_refused(await house.admin.get(f"/bus/topics/{name}"), 404)


@pytest.mark.parametrize("name", ["Widgets", "w" * 65, "wid%20gets", "%C3%A4"])
async def test_a_bad_name_is_refused(house: House, name: str) -> None:
    reply = await house.admin.put(f"/bus/topics/{name}", {})
    assert is_refused(reply, 422)
    assert reply.json["field"] == "topic"


async def test_pages_lead_through_all_topics(house: House) -> None:
    alice, names = await house.service(), sorted(fresh_name("paged.") for _ in range(5))
    for name in names:
        await alice.put(f"/bus/topics/{name}", {})
    found, path = list[str](), "/bus/topics?limit=2"
    while path:
        page = await alice.get(path)
        found += [each["name"] for each in page.json]
        path = page.headers.get("link", "").partition(">")[0].removeprefix("<")
    assert found == sorted({*found})
    assert [name for name in found if name.startswith("paged.")] == names


async def test_beyond_the_quota_nothing_is_made(house: House) -> None:
    alice, first, second = await house.service(), fresh_name(), fresh_name()
    narrow = Client(house.build(BusSettings(topics_per_namespace=1)), alice.headers)
    assert (await narrow.put(f"/bus/topics/{first}", {})).status == 201
    for reply in (
        await narrow.put(f"/bus/topics/{second}", {}),
        await narrow.post(f"/bus/topics/{second}/events", event()),
    ):
        assert is_refused(reply, 422)
        assert reply.json["field"] == "topic"
    assert is_refused(await alice.get(f"/bus/topics/{second}"), 404)


async def test_a_token_of_the_bus_opens_both_apis(bus: Bus) -> None:
    token = (await bus.root.post("/api_tokens", {"name": "alice"})).json["token"]
    client, native, topic = bus.root.client(token), bus.house.admin.service(token), bus.topic()
    assert is_empty(await client.post("/subscriber", subscription(topic)), 204)
    assert (await native.put(f"/bus/topics/{topic}", {})).json["owner"] is not None
    assert (await bus.topics())[topic] == "alice"
    assert is_refused(await native.get("/schedules"), 401)


async def test_nobody_takes_the_topic_of_carillon_itself(house: House) -> None:
    for caller in (house.admin, await house.service()):
        assert is_refused(await caller.put(f"/bus/topics/{NOTICES}", {}), 403)
        assert is_refused(await caller.post(f"/bus/topics/{NOTICES}/events", event()), 403)
