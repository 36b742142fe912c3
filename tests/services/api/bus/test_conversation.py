"""The recorded requests of Routemaster's client, answered as it expects."""

import pytest

from tests.services.api.bus.conftest import Bus
from tests.services.api.bus.recorded import CONVERSATION, OF_ROOT, request
from tests.services.api.client import Client, Reply
from tests.services.api.conftest import ROOT_KEY

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def sent(client: Client, content: bytes) -> Reply:
    """The answer to a request, of which every header and every byte of the body is as it was recorded."""
    head, _, body = content.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    method, path, _ = line.decode().split(" ")
    pairs = [(name.lower(), value) for name, _, value in (header.partition(b": ") for header in headers)]
    kept = [(name, value) for name, value in pairs if name not in {b"host", b"content-length"}]
    return await client.exchange(method, path, body, kept)


async def test_a_clients_conversation_is_answered_as_it_expects(bus: Bus) -> None:
    token = (await bus.root.post("/api_tokens", {"name": "demo"})).json["token"]
    answers = {}
    for method, path, body, status in CONVERSATION:
        reply = await sent(bus.root, request(method, path, token, body))
        assert reply.status == status, f"{method} {path}: {reply}"
        assert (reply.body == b"") == (method != "GET" or status == 204)
        answers[method, path] = reply
    [widgets] = [each for each in answers["GET", "/topics"].json if each["name"] == "widgets"]
    assert widgets == {"name": "widgets", "publisher": token, "events": widgets["events"]}
    [own] = [each for each in answers["GET", "/subscriptions"].json if each["subscriber"] == token]
    assert own | {"events": None} == {
        "subscriber": token, "uuid": "hello", "callback": "https://app.example.com/events",
        "max_events": 500, "timeout": 60_000, "topics": ["widgets"], "events": None,
    }  # fmt: skip


async def test_what_rtm_asks_as_root_is_answered_as_it_expects(bus: Bus) -> None:
    await bus.house.store.tokens._tokens.delete_many({"scope": "bus"})
    for method, path, body, status in OF_ROOT:
        reply = await sent(bus.root, request(method, path, ROOT_KEY, body))
        assert reply.status == status, f"{method} {path}: {reply}"
        if method == "GET" and status == 200:
            assert [each["name"] for each in reply.json] == ["my-service", "my-service"]
        if status == 201:
            assert reply.json["name"] == "my-service"
            assert reply.json["token"].startswith("my-service--")
