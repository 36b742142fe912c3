"""`/subscriber` and `/subscription`: a client's one subscription, replaced by each POST."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from shared.bus.rules.subscriptions import SubscriptionStatus
from shared.bus.store_subscriptions import BusSubscriptions, SubscriptionWrite
from shared.bus.store_topics import BusTopics
from shared.runtime.bus_settings import BusSettings
from tests.services.api.bus.conftest import CALLBACK, Bus, event, is_empty, is_refused, subscription
from tests.services.api.client import Client

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

KEYS = ["subscriber", "uuid", "callback", "max_events", "timeout", "topics", "events"]
BAD: dict[str, dict[str, Any]] = {
    "no topics": {"callback": CALLBACK},
    "topics of another kind": subscription() | {"topics": "widgets"},
    "topics of another kind within": subscription() | {"topics": [7]},
    "a bad name": subscription("Widgets"),
    "no callback": {"topics": []},
    "null for a callback": subscription(callback=None),
    "a callback of another kind": subscription(callback=7),
    "an http callback": subscription(callback="http://app.example.com/events"),
    "a callback with a query": subscription(callback=f"{CALLBACK}?a=b"),
    "a callback to nobody": subscription(callback="https://"),
    "a callback to this machine": subscription(callback="https://127.0.0.1/"),
    "a callback to clouds' metadata": subscription(callback="https://169.254.169.254/latest"),
    "a uuid of another kind": subscription(uuid=7),
    "a uuid that no header carries": subscription(uuid="a\r\nb: c"),
    "a long uuid": subscription(uuid="x" * 256),
    "a timeout below none": subscription(timeout=-1),
    "a timeout of over an hour": subscription(timeout=3_600_001),
    "a timeout that is no integer": subscription(timeout=0.5),
    "a timeout of another kind": subscription(timeout="500"),
    "no events": subscription(max=0),
    "a max that is no integer": subscription(max=1.5),
    "true for a max": subscription(max=True),
    "an unknown key": subscription(maximum=7),
}


async def shown_of(client: Client) -> dict[str, Any]:
    """The subscription of the one who asks."""
    [shown] = [each for each in (await client.get("/subscribers")).json if each["subscriber"] == token_of(client)]
    return dict(shown)


def token_of(client: Client) -> str:
    import base64

    return base64.b64decode(client.headers["authorization"].removeprefix("Basic ")).decode().removesuffix(":x")


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_subscription_makes_nothing(bus: Bus, name: str) -> None:
    client, topic = await bus.client(), bus.topic()
    body = dict(BAD[name])
    if body.get("topics") == []:
        body["topics"] = [topic]
    reply = await client.post("/subscription", body)
    assert is_refused(reply, 400), reply
    assert topic not in await bus.topics()
    assert is_refused(await client.delete("/subscriber"), 404)


async def test_a_new_one_has_the_defaults_and_shows_every_key(bus: Bus) -> None:
    client, topic = await bus.client(), bus.topic()
    assert is_empty(await client.post("/subscriber", subscription(topic)), 204)
    shown = await shown_of(client)
    assert list(shown) == KEYS
    assert shown == {
        "subscriber": token_of(client), "uuid": None, "callback": CALLBACK, "max_events": 100, "timeout": 500,
        "topics": [topic], "events": {"sent": 0, "queued": 0, "oldest": None},
    }  # fmt: skip


async def test_a_second_one_replaces_what_it_gives_and_clears_the_uuid(bus: Bus) -> None:
    client, first, second = await bus.client(), bus.topic(), bus.topic()
    whole = subscription(first, uuid="me", timeout=0, max=7)
    assert is_empty(await client.post("/subscriber", whole), 204)
    given = await shown_of(client)
    assert (given["uuid"], given["timeout"], given["max_events"]) == ("me", 0, 7)
    other = f"{CALLBACK}/other"
    assert is_empty(await client.post("/subscription", subscription(second, callback=other, timeout=None)), 204)
    assert await shown_of(client) == given | {"topics": [second], "uuid": None, "callback": other}
    assert is_empty(await client.post("/subscription", subscription()), 204)
    assert (await shown_of(client))["topics"] == []


async def test_the_same_again_writes_nothing(bus: Bus) -> None:
    client, topic = await bus.client(), bus.topic()
    body = subscription(topic, uuid="me", timeout=1, max=5)
    assert is_empty(await client.post("/subscriber", body), 204)
    subscriptions = bus.house.store._database["bus_subscriptions"]
    before = await subscriptions.find().to_list()
    assert is_empty(await client.post("/subscriber", body), 204)
    assert await subscriptions.find().to_list() == before


async def test_the_user_of_a_callback_stands_for_the_uuid(bus: Bus) -> None:
    client, topic = await bus.client(), bus.topic()
    with_user = CALLBACK.replace("https://", "https://me%3A1:secret@")
    for given, uuid in (
        (subscription(topic, callback=with_user), "me:1"),
        (subscription(topic, callback=with_user, uuid="other"), "other"),
    ):
        assert is_empty(await client.post("/subscriber", given), 204)
        shown = await shown_of(client)
        assert (shown["callback"], shown["uuid"]) == (CALLBACK, uuid)


async def test_nobody_subscribes_to_anothers_private_topic(bus: Bus) -> None:
    token, topic = str((await bus.root.post("/api_tokens", {"name": "alice"})).json["token"]), bus.topic()
    assert (await bus.house.admin.service(token).put(f"/bus/topics/{topic}", {"private": True})).status == 201
    other = await bus.client()
    reply = await other.post("/subscription", subscription(topic))
    assert is_refused(reply, 403)
    assert topic in reply.json["reason"]
    assert is_refused(await other.delete("/subscriber"), 404)
    assert is_empty(await bus.root.client(token).post("/subscription", subscription(topic)), 204)


async def test_no_delivery_has_over_ten_thousand_events(bus: Bus) -> None:
    client, topic = await bus.client(), bus.topic()
    for most in (10_001, 10**30):
        assert is_empty(await client.post("/subscriber", subscription(topic, max=most)), 204)
        assert (await shown_of(client))["max_events"] == 10_000


async def test_a_uuid_and_the_path_of_a_callback_are_for_their_owner_and_root(bus: Bus) -> None:
    client, other, topic = await bus.client("alice"), await bus.client("bob"), bus.topic()
    callback = "https://me:pw@app.example.com:8443/hooks/s3cr3t"
    assert is_empty(await client.post("/subscriber", subscription(topic, uuid="s3cr3t", callback=callback)), 204)
    whole = "https://app.example.com:8443/hooks/s3cr3t"
    for caller, uuid, name, callback in (
        (client, "s3cr3t", token_of(client), whole),
        (bus.root, "s3cr3t", "alice", whole),
        (other, None, "alice", "https://app.example.com:8443/…"),
    ):
        for path in ("/subscribers", "/subscriptions"):
            reply = await caller.get(path)
            assert reply.headers["content-type"] == "application/json"
            [shown] = [each for each in reply.json if each["topics"] == [topic]]
            assert (shown["uuid"], shown["subscriber"], shown["callback"]) == (uuid, name, callback)


async def test_what_is_left_is_left(bus: Bus) -> None:
    client, topic, other, unknown = await bus.client(), bus.topic(), bus.topic(), bus.topic()
    assert is_refused(await client.delete(f"/subscriber/topics/{topic}"), 404)
    assert is_empty(await client.post("/subscriber", subscription(topic, other)), 204)
    assert is_refused(await client.delete(f"/subscriber/topics/{unknown}"), 404)
    assert is_refused(await client.delete("/subscriber/topics/Bad-Name"), 404)
    assert is_empty(await client.delete(f"/subscriber/topics/{topic}"), 204)
    assert is_refused(await client.delete(f"/subscriber/topics/{topic}"), 404)
    assert (await shown_of(client))["topics"] == [other]
    assert is_empty(await client.delete("/subscriber"), 204)
    assert is_refused(await client.delete("/subscriber"), 404)
    assert is_empty(await client.post("/subscriber", subscription(topic)), 204)


async def test_topics_that_only_a_subscription_has_made_go_with_it(bus: Bus) -> None:
    """Else whoever subscribes again and again would make topics without end, which nobody can delete."""
    client, other, publisher = await bus.client(), await bus.client(), await bus.client()
    left, shared, owned = bus.topic(), bus.topic(), bus.topic()
    assert is_empty(await client.post("/subscriber", subscription(left, shared, owned)), 204)
    assert is_empty(await other.post("/subscriber", subscription(shared)), 204)
    assert is_empty(await publisher.post(f"/topics/{owned}", event()), 200)
    assert {left, shared, owned} <= {*await bus.topics()}
    assert is_empty(await client.post("/subscriber", subscription()), 204)
    assert {left, shared, owned} & {*await bus.topics()} == {shared, owned}
    assert is_empty(await other.delete("/subscriber"), 204)
    assert {left, shared, owned} & {*await bus.topics()} == {owned}
    assert is_empty(await other.post("/subscriber", subscription(shared)), 204)
    assert {left, shared, owned} & {*await bus.topics()} == {shared, owned}


async def test_many_who_list_at_once_cause_few_looks(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    client, looks = await bus.client(), {"subscriptions": 0, "topics": 0}
    assert is_empty(await client.post("/subscriber", subscription(bus.topic())), 204)
    for name, of, verb in (("subscriptions", BusSubscriptions, "page_published"), ("topics", BusTopics, "page")):
        original = getattr(of, verb)

        def page(self: Any, *, name: str = name, original: Any = original, **options: Any) -> Any:
            looks[name] += options["after"] == "" if "after" in options else 1
            return original(self, **options)

        monkeypatch.setattr(of, verb, page)
    for path in ("/subscribers", "/topics"):
        replies = await asyncio.gather(*(client.get(path) for _ in range(30)))
        assert len({reply.body for reply in replies}) == 1
    assert 0 < looks["subscriptions"] < 15
    assert 0 < looks["topics"] < 15


async def test_root_has_no_subscription(bus: Bus) -> None:
    assert is_refused(await bus.root.delete("/subscriber"), 404)
    assert is_refused(await bus.root.delete(f"/subscriber/topics/{bus.topic()}"), 404)


async def test_a_deleted_topic_goes_from_every_subscription(bus: Bus) -> None:
    publisher, client, topic = await bus.client(), await bus.client(), bus.topic()
    assert is_empty(await publisher.post(f"/topics/{topic}", event()), 200)
    assert is_empty(await client.post("/subscriber", subscription(topic)), 204)
    assert is_empty(await publisher.delete(f"/topics/{topic}"), 204)
    assert (await shown_of(client))["topics"] == []


async def test_a_subscription_has_only_so_many_topics(bus: Bus) -> None:
    client, topics = await bus.client(), [bus.topic() for _ in range(3)]
    narrow = Client(bus.house.build(BusSettings(topics_per_subscription=2)), client.headers)
    assert is_refused(await narrow.post("/subscriber", subscription(*topics)), 403)
    assert set(topics).isdisjoint(await bus.topics())
    assert is_empty(await narrow.post("/subscriber", subscription(*topics[:2])), 204)


async def test_the_subscriptions_of_a_namespace_have_only_so_many_topics_together(bus: Bus) -> None:
    client, first, second = await bus.client(), bus.topic(), bus.topic()
    narrow = Client(bus.house.build(BusSettings(topics_of_subscriptions=2)), client.headers)
    bearer = Client(narrow.app, {"authorization": f"Bearer {token_of(client)}"})
    other = {"callback": CALLBACK, "topics": [first, second]}
    assert is_empty(await narrow.post("/subscriber", subscription(first)), 204)
    refused = await bearer.put("/bus/subscriptions/other", other)
    assert (refused.status, refused.json["field"]) == (422, "topics"), refused.body
    assert second not in await bus.topics()
    assert (await bearer.put("/bus/subscriptions/other", other | {"topics": [second]})).status == 201
    assert is_refused(await narrow.post("/subscriber", subscription(first, second)), 403)
    assert is_empty(await narrow.post("/subscriber", subscription(second)), 204)


async def test_a_laptop_takes_callbacks_without_tls(bus: Bus) -> None:
    client, topic = await bus.client(), bus.topic()
    laptop = Client(bus.house.build(BusSettings(allow_http=True)), client.headers)
    callback = "http://app.example.com/events"
    assert is_empty(await laptop.post("/subscriber", subscription(topic, callback=callback)), 204)


async def test_a_suspended_one_goes_on_when_its_client_subscribes_again(bus: Bus) -> None:
    client, topic, store = await bus.client(), bus.topic(), bus.house.store
    assert is_empty(await client.post("/subscriber", subscription(topic)), 204)
    page = await store.bus_subscriptions.page_published(limit=1_000)
    [stands] = [await store.bus_subscriptions.get(found.id) for found in page if found.topics == (topic,)]
    assert stands is not None
    suspended = replace(stands, state=SubscriptionStatus.SUSPENDED)
    assert await store.bus_subscriptions.write(SubscriptionWrite(stands, suspended), now=await store.now())
    assert is_empty(await client.post("/subscriber", subscription(topic)), 204)
    again = await store.bus_subscriptions.get(stands.id)
    assert again is not None
    assert (again.state, again.queue) == (SubscriptionStatus.ACTIVE, stands.queue)
