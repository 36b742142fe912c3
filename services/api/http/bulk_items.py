"""Bodies of many items: an array, or NDJSON, which is an item a line with empty lines left out. Each item has an answer
of its own, and these come in the form in which the items came."""

from codecs import BOM_UTF8
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from io import BytesIO
from itertools import islice
from typing import Any, Self, TypeVar

import msgspec
from litestar import Request, Response
from msgspec import Raw, Struct, defstruct
from msgspec.structs import astuple

from services.api.http import wire
from services.api.http.errors import STATUS
from services.api.http.strict_bodies import decode_body
from shared.domain.errors import Invalid, Refused

NDJSON = "application/x-ndjson"

ITEM_BYTES = 2 * 2**20
"""The most for an item whose fields may have any names: one of millions of fields would hold the loop for a second."""

_NDJSON_TYPES = frozenset({NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines"})
_lone_decoder = msgspec.json.Decoder(Raw)

R = TypeVar("R", bound=Refused)


class ItemError(Struct, frozen=True):
    """The error in an item."""

    reason: str
    field: str | None

    @classmethod
    def of(cls, error: Refused) -> Self:
        """The part of this error that is shown to callers."""
        return cls(error.reason, error.field)


class ItemsBody(Struct, frozen=True):
    """The items of a request, each as its bytes."""

    items: Sequence[bytes]
    in_lines: bool

    def answer(self, answers: Sequence[Struct], status: HTTPStatus = HTTPStatus.OK) -> Response[bytes]:
        """These answers, in the form of the items."""
        if not self.in_lines:
            return wire.answer(answers, status)
        lines = msgspec.json.Encoder().encode_lines(answers)
        return Response(lines, media_type=NDJSON, status_code=status)


def read_items(request: Request[Any, Any, Any], content: bytes, *, most: int) -> ItemsBody:
    """The items of a body. Raises `Invalid` if there are none, or more than `most`."""
    content = content.removeprefix(BOM_UTF8)
    in_lines = _is_ndjson(request, content)
    items = _lines(content, most + 1) if in_lines else _elements(content, most + 1)
    if not 1 <= len(items) <= most:
        raise Invalid(f"1 to {most:,} items are needed", value=len(items) if len(items) <= most else f"over {most:,}")
    return ItemsBody(items, in_lines)


def read_lone_item(request: Request[Any, Any, Any], content: bytes) -> bytes | None:
    """The body as the only item if it is an object and not declared as lines; else `None`."""
    content = content.removeprefix(BOM_UTF8)
    if _kind(request) in _NDJSON_TYPES or content.lstrip()[:1] != b"{":
        return None
    try:
        return bytes(_lone_decoder.decode(content))
    except (msgspec.DecodeError, RecursionError):
        return content if len(_lines(content, 2)) == 1 else None


def check_size(item: bytes) -> None:
    """Raise `Invalid` for an item that is too large to be read at once."""
    if len(item) > ITEM_BYTES:
        raise Invalid(f"one of several takes {ITEM_BYTES:,} bytes at most")


def without_frames(error: R) -> R:
    """The error without its frames, which would keep the item in memory until all items are read."""
    error.__context__ = None
    return error.with_traceback(None)


def status_of(error: Refused) -> HTTPStatus:
    """The status of the answer to a single item with this error."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def _is_ndjson(request: Request[Any, Any, Any], content: bytes) -> bool:
    return _kind(request) in _NDJSON_TYPES or content.lstrip()[:1] == b"{"


def _kind(request: Request[Any, Any, Any]) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _lines(content: bytes, most: int) -> list[bytes]:
    """The first `most` non-empty lines. The others are not read, because a body may have millions."""
    lines = islice(filter(bytes.strip, BytesIO(content)), most)
    return [line.removesuffix(b"\n") for line in lines]


def _elements(content: bytes, most: int) -> list[bytes]:
    elements = astuple(decode_body(content, _decode_elements(most), is_checked_later=True))
    return [bytes(element) for element in elements if element is not None]


@lru_cache
def _decode_elements(most: int) -> msgspec.json.Decoder[Struct]:
    """A decoder of arrays that skips all elements after the first `most` without making objects, because a body may
    have millions."""
    fields = [(f"element_{number}", Raw, None) for number in range(most)]
    return msgspec.json.Decoder(defstruct("Elements", fields, array_like=True))
