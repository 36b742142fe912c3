"""A strict body is one JSON value in which each field of ours stands once; what is not read stays as it came."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct

from services.api.http.strict_bodies import decode_body
from shared.domain.errors import Invalid


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


def test_what_is_not_read_stays_as_it_came() -> None:
    payload = b'{"a":1,"a":[{"b":1,"b":2}]}'
    read = decode_body(b'{"name":"a","parameters":{"x":{"y":1}},"payload":' + payload + b"}", decoder)
    assert (bytes(read.payload), read.parameters) == (payload, {"x": {"y": 1}})


def test_a_mark_of_byte_order_before_it_is_left_out() -> None:
    assert decode_body(b'\xef\xbb\xbf{"name":"a"}', decoder).name == "a"
