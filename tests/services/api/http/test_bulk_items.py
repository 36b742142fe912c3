"""Bodies of many items: no more of them is kept than may be in one."""

import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from services.api.http.bodies import NDJSON, ItemsBody, read_items, without_frames
from shared.core.errors import Invalid

MOST = 10_000
ITEMS = 2**20


def read(content: bytes, kind: str = "application/json") -> ItemsBody:
    request: Any = SimpleNamespace(headers={"content-type": kind})
    return read_items(request, content, most=MOST)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"[" + b",".join([b"0"] * ITEMS) + b"]", "application/json"),
        (b"[" + b",".join([b"{}"] * ITEMS) + b"]", "application/json"),
        (b"{}\n" * ITEMS, NDJSON),
    ],
)
def test_millions_of_tiny_items_are_refused_without_room_for_them(content: bytes, kind: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Invalid, match="1 to 10,000 items"):
            read(content, kind)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * 2**20, f"{peak:,} bytes"


def test_items_are_read_as_they_are_written() -> None:
    assert read(b'[null, {"a": 1} ,"x"]').items == [b"null", b'{"a": 1}', b'"x"']
    lines = read(b'{"a":1}\n\n  \n{"b":2}')
    assert (lines.items, lines.in_lines) == ([b'{"a":1}', b'{"b":2}'], True)
    assert read(b'\xef\xbb\xbf{"a":1}\n').items == [b'{"a":1}']  # a mark of byte order, as some editors write it
    assert read(b"\xef\xbb\xbf[1]").items == [b"1"]
    assert len(read(b"[" + b",".join([b"1"] * MOST) + b"]").items) == MOST
    for nothing in (b"[]", b"[1,2", b"5", b"[" + b",".join([b"1"] * (MOST + 1)) + b"]"):
        with pytest.raises(Invalid):
            read(nothing)


def test_an_error_that_is_kept_keeps_nothing_else() -> None:
    def read_number(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise Invalid("must be a number") from None

    with pytest.raises(Invalid) as refused:
        read_number("x" * 10)
    assert refused.value.__traceback__ is not None
    kept = without_frames(refused.value)
    assert (kept, kept.reason) == (refused.value, "must be a number")
    assert (kept.__traceback__, kept.__context__) == (None, None)
