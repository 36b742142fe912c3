"""Events as they come in, as the log has them, and as they go out."""

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from shared.bus.rules.events import (
    EventDraft,
    published_form,
    read_event,
    read_native,
    read_published,
    stamp,
)
from shared.core.errors import Invalid

URL = "https://example.com/widgets/1"
NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)


def published(**fields: Any) -> EventDraft:
    body = {"type": "create", "url": URL} | fields
    kept = {name: value for name, value in body.items() if value is not UNSET}
    return read_published(json.dumps(kept).encode(), data_bytes=64)


def native(**fields: Any) -> EventDraft:
    body = {"type": "create", "url": URL} | fields
    kept = {name: value for name, value in body.items() if value is not UNSET}
    return read_native(json.dumps(kept).encode(), data_bytes=64)


@pytest.mark.parametrize("inner", [1, "]]", '\\"[', "\\", [], {'"}': "{"}, [["["], "]"]])
def test_data_is_nested_no_deeper_than_receivers_read(inner: Any) -> None:
    def depth_of(value: Any) -> int:
        if not isinstance(value, dict | list):
            return 0
        return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)

    def make(depth: int) -> bytes:
        data: Any = inner
        for level in range(depth - 1 - depth_of(inner)):
            beside = [[], {"\\": {}}] if level > 3 else "["
            data = ["]", beside, data] if level % 2 else {"]": beside, "a": data}
        return json.dumps({"type": "create", "url": URL, "data": {"d": data}}).encode()

    for read in (read_native, read_published):
        read(make(50), data_bytes=10_000)
        with pytest.raises(Invalid, match="50 deep") as refused:
            read(make(51), data_bytes=10_000)
        assert refused.value.field == "data"


@pytest.mark.parametrize("kind", ["create", "update", "delete", "noop"])
def test_an_event_of_routemaster_is_read(kind: str) -> None:
    assert published(type=kind) == EventDraft(kind, URL)
    assert published(type=kind, timestamp=None, data=None, unknown=[1]) == EventDraft(kind, URL)
    draft = published(type=kind, timestamp=12, data={"n": 1})
    assert (bytes(draft.t), bytes(draft.data)) == (b"12", b'{"n": 1}')  # type: ignore[arg-type]  # both are there


@pytest.mark.parametrize("read", [published, native])
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"type": UNSET}, "type"),
        ({"type": None}, "type"),
        ({"type": ""}, "type"),
        ({"type": 1}, "type"),
        ({"type": "Create"}, "type"),
        ({"type": "create\n"}, "type"),
        ({"url": UNSET}, "url"),
        ({"url": "example.com"}, "url"),
        ({"url": "https://"}, "url"),
        ({"url": "ftp://example.com"}, "url"),
        ({"url": f"{URL}?a=1"}, "url"),
        ({"url": f"{URL}?"}, "url"),
        ({"url": f"{URL} x"}, "url"),
        ({"url": f"{URL}\n"}, "url"),
        ({"url": "https://[::1"}, "url"),
        ({"url": f"https://a/{'x' * 2_048}"}, "url"),
        ({"url": [URL]}, "url"),
    ],
)
def test_what_is_no_event_is_refused_by_the_name_of_its_field(read: Any, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid) as refused:
        read(**fields)
    assert refused.value.field == named


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"type": "touch"}, "type"),
        ({"url": "http://example.com"}, "url"),
        ({"timestamp": "now"}, "timestamp"),
        ({"timestamp": True}, "timestamp"),
        ({"data": [1]}, "data"),
        ({"data": "text"}, "data"),
        ({"data": {"text": "x" * 60}}, "data"),
        ({"data": {"n": 2**70}}, "data"),
    ],
)
def test_routemasters_own_rules(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid) as refused:
        published(**fields)
    assert refused.value.field == named


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"id": "a b"}, "id"),
        ({"id": "x" * 129}, "id"),
        ({"id": "é"}, "id"),
        ({"t": "1"}, "t"),
        ({"data": "x" * 63}, "data"),
        ({"timestamp": 1}, "timestamp"),
    ],
)
def test_rules_of_our_own_api(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid) as refused:
        native(**fields)
    assert refused.value.field == named


def test_what_an_event_has_is_told_where_it_has_more() -> None:
    with pytest.raises(Invalid, match="an event has data, id, t, type, url only") as refused:
        read_native(b'{"type":"noop","url":"https://a/","`x\\n`":{"deep":1}}', data_bytes=64)
    assert refused.value.field == "`x\n`"


@pytest.mark.alone
@pytest.mark.parametrize("read", [read_published, read_native])
@pytest.mark.parametrize(("before", "after"), [(b"", b""), (b'"type":{', b"}"), (b'"data":{', b"}")])
def test_of_fields_that_nobody_reads_no_objects_are_made(
    read: Callable[..., EventDraft], before: bytes, after: bytes
) -> None:
    fields = b",".join(b'"%d":0' % number for number in range(50_000))
    tracemalloc.start()
    try:
        with suppress(Invalid):
            read(b'{"url":"https://a/","type":"noop",' + before + fields + after + b"}", data_bytes=64)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000  # a dictionary of them takes 6 MB
    finally:
        tracemalloc.stop()


def test_our_own_api_takes_more() -> None:
    draft = native(id="e-1", type="order.paid_2", url="http://example.com/a#b", t=-1.5, data="x" * 62)
    assert (draft.id, draft.type, draft.url) == ("e-1", "order.paid_2", "http://example.com/a#b")
    assert draft.t == Raw(b"-1.5")
    # Null is a value of JSON like others here; what Routemaster's clients send as null is nothing.
    assert native(data=None).data == Raw(b"null")
    assert native(id=None) == EventDraft("create", URL)


@pytest.mark.parametrize("body", [b"", b"[]", b'"a"', b"{", b'{"a": 1} x', b"\xff", b"[" * 100_000, b"null"])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid):
        read_published(body, data_bytes=64)


def test_the_bound_of_data_is_that_of_message_pack() -> None:
    for size in (61, 62):
        data = {"a": "x" * (size - 5)}
        assert len(msgspec.msgpack.encode(data)) == size
    assert read_published(b'{"type":"noop","url":"https://a/","data":{"a":"xyz"}}', data_bytes=7) is not None
    with pytest.raises(Invalid, match="at most 6 bytes as MessagePack, not 7"):
        read_published(b'{"type":"noop","url":"https://a/","data":{"a":"xyz"}}', data_bytes=6)


@given(NUMBERS, st.dictionaries(st.text(max_size=3), st.integers(-5, 5), max_size=3))
def test_what_comes_in_goes_out_as_it_was_written(t: float, data: dict[str, int]) -> None:
    written = json.dumps({"type": "update", "url": URL, "timestamp": t, "data": data}).encode()
    draft = read_published(written, data_bytes=64)
    record = stamp(draft, topic="widgets", id="1", at=99)
    event = read_event(record)
    assert event is not None
    assert (event.id, event.at, event.topic, event.type, event.url) == ("1", 99, "widgets", "update", URL)
    out = published_form(event)
    assert json.loads(out) == {"topic": "widgets", "type": "update", "url": URL, "t": t, "data": data}
    assert f'"t":{json.dumps(t)}'.encode() in out
    assert list(json.loads(out)) == ["topic", "type", "url", "t", "data"]


def test_an_event_without_a_time_has_that_of_its_arrival_and_without_data_none() -> None:
    record = stamp(EventDraft("noop", URL, id="mine"), topic="t", id="ours", at=1_700_000_000_123)
    assert json.loads(record) == {
        "id": "mine", "at": 1_700_000_000_123, "topic": "t", "type": "noop", "url": URL, "t": 1_700_000_000_123,
    }  # fmt: skip
    event = read_event(record)
    assert event is not None
    assert json.loads(published_form(event)) == {"topic": "t", "type": "noop", "url": URL, "t": 1_700_000_000_123}


@pytest.mark.parametrize("record", [b"", b"{}", b"[]", b"\xff", b'{"id":1}', b"[" * 100_000, b'{"id":"\\ud800"}'])
def test_what_somebody_else_wrote_into_the_log_is_no_event(record: bytes) -> None:
    assert read_event(record) is None


@pytest.mark.parametrize(
    "data",
    [b"{" + b" " * 1_000 + b"}", b'{"a":1' + b',"a":1' * 200 + b"}", b'{"a":0.' + b"0" * 1_000 + b"1}"],
    ids=["blanks", "one key again and again", "a long number"],
)
def test_what_is_written_long_though_it_says_little_is_refused(data: bytes) -> None:
    with pytest.raises(Invalid) as refused:
        read_published(b'{"type":"noop","url":"https://a/","data":' + data + b"}", data_bytes=64)
    assert refused.value.field == "data"


@pytest.mark.parametrize(("read", "field"), [(read_published, "timestamp"), (read_native, "t")])
def test_a_number_is_one_that_every_receiver_can_read(read: Callable[..., EventDraft], field: str) -> None:
    def read_number(number: bytes) -> bytes:
        draft = read(b'{"type":"noop","url":"https://a/","%b":%b}' % (field.encode(), number), data_bytes=64)
        return bytes(draft.t)  # type: ignore[arg-type]  # it is there

    for number in (b"9" * 38, b"1.7976931348623157e308", b"-1e-400", b"-0.0"):
        assert read_number(number) == number
    for number in (b"1e999", b"-1e999", b"1.8e308"):
        with pytest.raises(Invalid, match="must be a number that a double holds") as refused:
            read_number(number)
        assert refused.value.field == field


def test_a_number_has_an_end() -> None:
    def timestamp(digits: int) -> bytes:
        return b'{"type":"noop","url":"https://a/","timestamp":' + b"9" * digits + b"}"

    assert read_published(timestamp(64), data_bytes=64).t == Raw(b"9" * 64)
    with pytest.raises(Invalid) as refused:
        read_published(timestamp(65), data_bytes=64)
    assert refused.value.field == "timestamp"
