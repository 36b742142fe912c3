"""A strict body is one JSON value in which each field of ours stands once; what is not read stays as it came."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct

from services.api.http.bodies import decode_body
from shared.core.errors import Invalid


class Retry(Struct, forbid_unknown_fields=True):
    attempts: int = 1


class Wish(Struct, forbid_unknown_fields=True):
    name: str
    retry: Retry | None = None
    steps: list[Retry] = []
    labels: dict[str, str] = {}
    parameters: dict[str, Any] = {}
    payload: Raw = Raw(b"null")


decoder = msgspec.json.Decoder(Wish)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"name":"a","name":"a"}', "name"),
        (b'{"name":"a","retry":{"attempts":1,"attempts":2}}', "retry.attempts"),
        (b'{"name":"a","steps":[{},{"attempts":1,"attempts":2}]}', "steps[1].attempts"),
        (b'{"name":"a","labels":{"team":"x","team":"y"}}', "labels.team"),
        (b'{"name":"a","parameters":{"x":1,"x":2}}', "parameters.x"),
        (b'{"name":"a","parameters":{"x":[{"y":1,"y":2}]}}', "parameters.x[0].y"),
        (b'{"name":"a","labels":{},"payload":{"a":1,"a":2},"labels":{}}', "labels"),
    ],
)
def test_a_field_that_stands_twice_is_refused_by_its_path(body: bytes, field: str) -> None:
    with pytest.raises(Invalid, match="twice: remove one") as refused:
        decode_body(body, decoder)
    assert refused.value.field == field


NOT_KEPT = (
    "1E400", "-1e309", "1e-400", "0.1234567890123456789", "9007199254740993.0", "9" * 30, "-" + "9" * 20,
    "18446744073709551616", "-9223372036854775809", "9" * 5_000,
)  # fmt: skip
KEPT = (
    "1.10", "0.10000000000000001", "0.30000000000000004", "1.000000000000000000000", "1e5", "0e999", "-0.0", "1E-300",
    "5e-324", "1.7976931348623157e308", "18446744073709551615", "-9223372036854775808", "9007199254740992.0",
)  # fmt: skip


@pytest.mark.parametrize("number", NOT_KEPT)
def test_a_number_that_would_change_is_refused_by_its_path(number: str) -> None:
    with pytest.raises(Invalid, match=r"number|out of range") as refused:
        decode_body(b'{"name":"a","parameters":{"x":[{"y":%s}]}}' % number.encode(), decoder)
    assert (refused.value.field or "").startswith("parameters")


@pytest.mark.parametrize("number", KEPT)
def test_a_number_that_64_bits_keep_is_taken(number: str) -> None:
    read = decode_body(b'{"name":"a","parameters":{"x":%s}}' % number.encode(), decoder)
    assert read.parameters == {"x": msgspec.json.decode(number)}


def test_a_body_is_nested_64_deep_at_most() -> None:
    body = '{"name":"a","parameters":{"x":%s}}'
    decode_body((body % ("[" * 62 + "]" * 62)).encode(), decoder)
    for depth in (63, 200, 850):
        with pytest.raises(Invalid, match="nested more than 64 deep") as refused:
            decode_body((body % ("[" * depth + "]" * depth)).encode(), decoder)
        assert refused.value.field == "parameters"


def test_what_is_not_read_stays_as_it_came() -> None:
    payload = b'{"a":1,"a":[{"b":1E400,"b":0.1234567890123456789}],"n":' + b"[" * 100 + b"]" * 100 + b"}"
    read = decode_body(b'{"name":"a","parameters":{"x":{"y":1}},"payload":' + payload + b"}", decoder)
    assert (bytes(read.payload), read.parameters) == (payload, {"x": {"y": 1}})


def test_a_mark_of_byte_order_before_it_is_left_out() -> None:
    assert decode_body(b'\xef\xbb\xbf{"name":"a"}', decoder).name == "a"
