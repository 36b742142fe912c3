"""`POST /bus/topics/{name}/events`: good events come into the log as they were written, bad ones spoil no other."""

import json

import pytest

from tests.services.api.bus.conftest import URL, event, is_refused
from tests.services.api.bus.native.test_topics import fresh_name
from tests.services.api.conftest import House
from tests.waiting import until

pytestmark = [pytest.mark.bus_routes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

BAD = {
    "type": event(type="No"),
    "url": event(url="ftp://a.example.com/"),
    "t": event(t="1"),
    "id": event(id="a b"),
    "data": event(data="x" * 16_384),
    "unknown": event(unknown=1),
}


async def records(house: House, topic: str, count: int) -> list[bytes]:
    """So many records of a topic, as the log has them."""
    found: list[bytes] = []
    async with house.servers.stream.reader("carillon[.]bus", group=f"test-{topic}") as reader:

        async def look() -> bool:
            named = f'"{topic}"'.encode()
            found.extend(value for chunk in await reader.read(1) for value in chunk.values if value and named in value)
            return len(found) >= count

        await until(look, f"{count} records in the log")
    return found


async def test_one_event_is_published_as_it_was_written(house: House) -> None:
    alice, name = await house.service(), fresh_name()
    content = b'{\n"type": "order.paid", "url": "http://a.example.com/1",\n"t": 1.50, "id": "e-1", "data": [1.0]}\n'
    reply = await alice.post(f"/bus/topics/{name}/events", content)
    assert (reply.status, reply.json) == (202, [{"index": 0, "id": "e-1", "status": 202, "error": None}])
    [record] = await records(house, name, 1)
    assert b'"t":1.50' in record
    assert b'"data":[1.0]' in record
    assert (json.loads(record)["id"], json.loads(record)["type"]) == ("e-1", "order.paid")


async def test_arrays_and_lines_have_a_result_an_item(house: House) -> None:
    alice, name = await house.service(), fresh_name()
    items = [event(id="a"), *BAD.values(), event(id="b"), 7, []]
    expected = [202, *[422] * len(BAD), 202, 422, 422]
    listed = await alice.post(f"/bus/topics/{name}/events", items)
    assert listed.status == 202
    assert [each["status"] for each in listed.json] == expected
    assert [each["error"]["field"] for each in listed.json[1 : 1 + len(BAD)]] == list(BAD)
    lines = b"\n".join(json.dumps(item).encode() for item in items)
    told = await alice.post(f"/bus/topics/{name}/events", lines, content_type="application/x-ndjson")
    assert (told.status, told.headers["content-type"]) == (202, "application/x-ndjson")
    assert [json.loads(line)["status"] for line in told.body.splitlines()] == expected
    assert [json.loads(each)["id"] for each in await records(house, name, 4)] == ["a", "b", "a", "b"]


@pytest.mark.parametrize("field", BAD)
async def test_one_bad_event_is_refused_and_claims_nothing(house: House, field: str) -> None:
    alice, name = await house.service(), fresh_name()
    reply = await alice.post(f"/bus/topics/{name}/events", BAD[field])
    assert is_refused(reply, 422)
    assert reply.json["field"] == field
    assert (await alice.post(f"/bus/topics/{name}/events", [BAD[field]])).status == 202
    assert is_refused(await alice.get(f"/bus/topics/{name}"), 404)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"no", b"7", b"{", b"\xff", b"[" * 2_000, b'[{"type":"a"}] []', b"[" + b"{}," * 10_000 + b"{}]"],
)
async def test_what_holds_no_items_is_refused(house: House, content: bytes) -> None:
    alice, name = await house.service(), fresh_name()
    assert is_refused(await alice.post(f"/bus/topics/{name}/events", content), 422)
    assert is_refused(await alice.get(f"/bus/topics/{name}"), 404)


@pytest.mark.parametrize(
    "data", [b'{"n":1E400}', b'"\\ud800"', b"[" * 5_000 + b"]" * 5_000, b"[" * 51 + b"]" * 51, b'"\xff"']
)
async def test_data_that_no_receiver_could_read_is_refused(house: House, data: bytes) -> None:
    alice, name = await house.service(), fresh_name()
    content = b'{"type": "create", "url": "' + URL.encode() + b'", "data": ' + data + b"}"
    for body, kind in ((content, "application/json"), (content + b"\n" + content, "application/x-ndjson")):
        reply = await alice.post(f"/bus/topics/{name}/events", body, content_type=kind)
        told = {json.loads(line)["status"] for line in reply.body.splitlines()}
        assert told == {422}
    assert is_refused(await alice.get(f"/bus/topics/{name}"), 404)


async def test_ten_thousand_events_are_taken_in_their_order(house: House) -> None:
    alice, name = await house.service(), fresh_name()
    reply = await alice.post(f"/bus/topics/{name}/events", [event(id=f"e{index}") for index in range(10_000)])
    assert reply.status == 202
    assert [each["id"] for each in reply.json] == [f"e{index}" for index in range(10_000)]
    assert [json.loads(each)["id"] for each in await records(house, name, 10_000)] == [
        f"e{index}" for index in range(10_000)
    ]


async def test_anothers_topic_takes_none(house: House) -> None:
    alice, bob, name = await house.service(), await house.service(), fresh_name()
    assert (await alice.post(f"/bus/topics/{name}/events", event())).status == 202
    assert is_refused(await bob.post(f"/bus/topics/{name}/events", event()), 403)
    assert is_refused(await bob.post(f"/bus/topics/{name}/events", event(type="No")), 403)
