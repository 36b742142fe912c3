"""`/topics`: what is refused makes and claims nothing, and is told by its status."""

import json

import pytest

from shared.bus.rules.events import NOTICES
from shared.runtime.bus_settings import BusSettings
from tests.services.api.bus.conftest import URL, Bus, event, is_empty, is_refused
from tests.services.api.client import Client
from tests.services.api.conftest import ROOT_KEY
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

BAD_EVENTS: dict[str, object] = {
    "no type": {"url": URL},
    "no url": {"type": "create"},
    "another type": event(type="created"),
    "a type of another kind": event(type=7),
    "a url of another kind": event(url=7),
    "an http url": event(url="http://app.example.com/1"),
    "a url with a query": event(url=f"{URL}?a=b"),
    "a url without a host": event(url="https:///1"),
    "a relative url": event(url="/widgets/1"),
    "a url with a space": event(url=f"{URL} 2"),
    "a long url": event(url=f"{URL}{'x' * 2_048}"),
    "a timestamp of another kind": event(timestamp="1"),
    "a timestamp that is no number": event(timestamp=True),
    "data of another kind": event(data=[1]),
    "data that is text": event(data="x"),
    "large data": event(data={"x": "y" * 64}),
    "data of many digits": b'{"type":"create","url":"https://a.example.com/","data":{"x":1' + b"0" * 40 + b"}}",
    "a half surrogate": b'{"type":"create","url":"https://a.example.com/","data":{"x":"\\ud800"}}',
}
NO_OBJECTS = (b"", b"no json", b"[]", b"null", b"7", b'"x"', b"{", b'{"type":"create"} {}', b"\xff", b"[" * 2_000)


@pytest.mark.parametrize("name", BAD_EVENTS)
async def test_a_bad_event_makes_and_claims_nothing(bus: Bus, name: str) -> None:
    client, topic = await bus.client(), bus.topic()
    reply = await client.post(f"/topics/{topic}", BAD_EVENTS[name])
    assert is_refused(reply, 400)
    assert reply.json["reason"]
    assert topic not in await bus.topics()


@pytest.mark.parametrize("body", NO_OBJECTS)
async def test_what_is_no_object_is_refused_before_all_else(bus: Bus, body: bytes) -> None:
    owner, client, topic = await bus.client(), await bus.client(), bus.topic()
    assert is_empty(await owner.post(f"/topics/{topic}", event()), 200)
    for path in (f"/topics/{topic}", "/topics/Bad", "/subscriber", "/subscription"):
        assert is_refused(await client.post(path, body), 400), path


@pytest.mark.parametrize("name", ["Widgets", "widgets1", "wid-gets", "w" * 65, "wid.gets", "%C3%A4"])
async def test_a_bad_name_is_refused(bus: Bus, name: str) -> None:
    client = await bus.client()
    assert is_refused(await client.post(f"/topics/{name}", event()), 400)
    assert is_refused(await client.delete(f"/topics/{name}"), 404)


@pytest.mark.parametrize("name", ["w", "_", "w" * 64])
async def test_a_good_name_is_taken(bus: Bus, name: str) -> None:
    client = await bus.client()
    assert is_empty(await client.post(f"/topics/{name}", event()), 200)
    assert is_empty(await client.delete(f"/topics/{name}"), 204)


async def test_who_publishes_first_owns_the_topic(bus: Bus) -> None:
    alice, bob, topic = await bus.client("alice"), await bus.client("bob"), bus.topic()
    assert is_empty(await alice.post(f"/topics/{topic}", event()), 200)
    assert is_refused(await bob.post(f"/topics/{topic}", event()), 403)
    # Another's claim is told before a bad event is.
    assert is_refused(await bob.post(f"/topics/{topic}", event(type="no")), 403)
    assert (await bus.topics())[topic] == "alice"


async def test_a_subscription_leaves_a_topic_to_its_first_publisher(bus: Bus) -> None:
    alice, bob, topic = await bus.client("alice"), await bus.client("bob"), bus.topic()
    subscribed = await alice.post("/subscriber", {"topics": [topic], "callback": "https://app.example.com/"})
    assert is_empty(subscribed, 204)
    assert (await bus.topics())[topic] is None
    assert is_empty(await bob.post(f"/topics/{topic}", event()), 200)
    assert (await bus.topics())[topic] == "bob"


async def test_good_events_are_taken(bus: Bus) -> None:
    client, topic = await bus.client(), bus.topic()
    for body in (
        *(event(type=kind) for kind in ("create", "update", "delete", "noop")),
        event(timestamp=None, data=None),
        event(timestamp=1.5),
        event(timestamp=-(10**30)),
        event(data={}),
        event(data={"x": "y" * 59}),
        event(unknown="ignored", topic="ignored"),
        b' {"type":"create","url":"https://a.example.com:8443/\xc3\xa4#x","timestamp":1e3}\n',
    ):
        reply = await client.post(f"/topics/{topic}", body)
        assert is_empty(reply, 200), (body, reply)


async def test_the_caller_sees_its_own_token_and_others_by_name(bus: Bus) -> None:
    token = (await bus.root.post("/api_tokens", {"name": "alice"})).json["token"]
    alice, bob, topic = bus.root.client(token), await bus.client("bob"), bus.topic()
    assert is_empty(await alice.post(f"/topics/{topic}", event()), 200)

    async def publisher(client: Client) -> object:
        reply = await client.get("/topics")
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        [shown] = [each for each in reply.json if each["name"] == topic]
        assert set(shown) == {"name", "publisher", "events"}
        return shown["publisher"]

    assert [await publisher(client) for client in (alice, bob, bus.root)] == [token, "alice", "alice"]


async def test_a_client_deletes_its_own_topics_and_root_all(bus: Bus) -> None:
    alice, bob, topic, other = await bus.client(), await bus.client(), bus.topic(), bus.topic()
    for name in (topic, other):
        assert is_empty(await alice.post(f"/topics/{name}", event()), 200)
    assert is_refused(await bob.delete(f"/topics/{topic}"), 403)
    assert is_empty(await alice.delete(f"/topics/{topic}"), 204)
    assert is_refused(await alice.delete(f"/topics/{topic}"), 404)
    assert is_empty(await bus.root.delete(f"/topics/{other}"), 204)
    assert is_refused(await bus.root.delete(f"/topics/{other}"), 404)
    assert {topic, other}.isdisjoint(await bus.topics())
    assert is_empty(await bob.post(f"/topics/{topic}", event()), 200)


async def test_everybody_deletes_topics_where_a_deployment_says_so(bus: Bus) -> None:
    alice, bob, topic = await bus.client(), await bus.client(), bus.topic()
    assert is_empty(await alice.post(f"/topics/{topic}", event()), 200)
    lenient = bus.house.build(BusSettings(root_key=ROOT_KEY, anybody_deletes_topics=True))
    assert is_empty(await Client(lenient, bob.headers).delete(f"/topics/{topic}"), 204)


async def test_nobody_but_carillon_tells_notices(bus: Bus) -> None:
    assert is_refused(await (await bus.client()).post(f"/topics/{NOTICES}", event()), 403)
    assert is_refused(await bus.root.delete(f"/topics/{NOTICES}"), 403)


async def test_a_namespace_owns_only_so_many_topics(bus: Bus) -> None:
    client, first, second = await bus.client(), bus.topic(), bus.topic()
    narrow = Client(bus.house.build(BusSettings(topics_per_namespace=1)), client.headers)
    assert is_empty(await narrow.post(f"/topics/{first}", event()), 200)
    assert is_refused(await narrow.post(f"/topics/{second}", event()), 403)
    assert second not in await bus.topics()


async def test_the_log_has_what_was_published_as_it_was_written(bus: Bus) -> None:
    client, topic = await bus.client(), bus.topic()
    body = b'{"data":{"a":1.50},"url":"https://a.example.com/1","timestamp":1500000000123.50,"type":"noop"}'
    assert is_empty(await client.post(f"/topics/{topic}", body), 200)
    named = f'"{topic}"'.encode()
    async with bus.house.servers.stream.reader("carillon[.]bus", group=f"test-{topic}") as reader:

        async def look() -> list[bytes]:
            return [value for chunk in await reader.read(1) for value in chunk.values if value and named in value]

        [record] = await until(look, "the record in the log")
    assert b'"t":1500000000123.50' in record
    assert b'"data":{"a":1.50}' in record
    assert json.loads(record)["url"] == "https://a.example.com/1"
