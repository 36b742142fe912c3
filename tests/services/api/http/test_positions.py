"""Cursors: what no store can look for is none of ours."""

import base64
from typing import Any

import pytest
from litestar.testing import RequestFactory

from services.api.http.paging import read_page
from shared.bus.rules.deliveries import BusLetterPlace
from shared.clock.rules.outcomes import LetterPlace
from shared.core.errors import Invalid


def read(position: str, of: Any) -> Any:
    cursor = base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")
    return read_page(RequestFactory().get("/", query_params={"cursor": cursor}), of).after


@pytest.mark.parametrize(
    ("position", "of"),
    [
        *(('["0001-01-01T00:00:00+14:00","a"]', place) for place in (LetterPlace, BusLetterPlace)),
        *(('["9999-12-31T23:59:59-14:00","a"]', place) for place in (LetterPlace, BusLetterPlace)),
        ("9223372036854775808", int),
        ("-9223372036854775809", int),
    ],
)
def test_what_no_store_can_look_for_is_no_cursor(position: str, of: Any) -> None:
    with pytest.raises(Invalid) as refused:
        read(position, of)
    assert refused.value.field == "cursor"


def test_the_outermost_positions_are_read() -> None:
    assert read('["0001-01-01T00:00:00+00:00","a"]', LetterPlace).id == "a"
    assert read('["9999-12-31T23:59:59.999999Z","b"]', BusLetterPlace).id == "b"
    assert read("9223372036854775807", int) == 2**63 - 1
    assert read('"x"', str) == "x"
