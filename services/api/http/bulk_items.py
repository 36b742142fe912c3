"""Bodies of many items: an array, or NDJSON, which is an item a line with empty lines left out. Each item has an answer
of its own, and these come in the form in which the items came."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Self

import msgspec
from litestar import Request, Response
from msgspec import Raw, Struct

from services.api.http import wire
from services.api.http.errors import STATUS
from services.api.http.strict_bodies import decode_body
from shared.domain.errors import Invalid, Refused

NDJSON = "application/x-ndjson"

_NDJSON_TYPES = frozenset({NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines"})
_items_decoder = msgspec.json.Decoder(list[Raw])


class ItemError(Struct, frozen=True):
    """What is wrong with an item."""

    reason: str
    field: str | None

    @classmethod
    def of(cls, error: Refused) -> Self:
        """What is told of this error."""
        return cls(error.reason, error.field)


class ItemsBody(Struct, frozen=True):
    """The items of a request, each as its bytes."""

    items: Sequence[bytes]
    in_lines: bool

    def answer(self, answers: Sequence[Struct]) -> Response[bytes]:
        """These answers, in the form in which the items came."""
        if not self.in_lines:
            return wire.answer(answers)
        lines = msgspec.json.Encoder().encode_lines(answers)
        return Response(lines, media_type=NDJSON, status_code=HTTPStatus.OK)


def read_items(request: Request[Any, Any, Any], content: bytes, *, most: int) -> ItemsBody:
    """The items of a body. Raises `Invalid` where there are none, or more than `most`."""
    in_lines = _is_ndjson(request, content)
    items = _lines(content) if in_lines else _elements(content)
    if not 1 <= len(items) <= most:
        raise Invalid(f"1 to {most:,} items are needed", value=len(items))
    return ItemsBody(items, in_lines)


def status_of(error: Refused) -> HTTPStatus:
    """What an item would have been answered with on its own."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def _is_ndjson(request: Request[Any, Any, Any], content: bytes) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind in _NDJSON_TYPES or content.lstrip()[:1] == b"{"


def _lines(content: bytes) -> list[bytes]:
    return [line for line in content.split(b"\n") if line.strip()]


def _elements(content: bytes) -> list[bytes]:
    return [bytes(item) for item in decode_body(content, _items_decoder)]
