"""Pages of lists: `?limit=` and `?cursor=`, and the `Link` header that leads to the next one.

A cursor is a position in the order of the list, so a page stays what it is whatever is added or removed meanwhile.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec
from litestar import Request
from msgspec import Struct

from shared.domain.errors import Invalid

MAX_LIMIT = 1_000
PUBLIC_PATH = "public_path"
"""The key in the application's state for the path below which callers reach it."""

P = TypeVar("P")
T = TypeVar("T")


class Asked(Struct, Generic[P], frozen=True):
    """The page that a request asks for: at most `limit` items behind the position `after`."""

    limit: int
    after: P | None

    @property
    def fetch(self) -> int:
        """How many to read: one more, which tells whether there is a next page."""
        return self.limit + 1


def asked(request: Request[Any, Any, Any], position: type[P]) -> Asked[P]:
    """The page that the query asks for; `position` is the type of this list's positions.

    Raises:
        Invalid: `limit` is not 1 to 1,000, or `cursor` is none of ours.
    """
    limit = first(request, "limit")
    cursor = first(request, "cursor")
    return Asked(_limit(limit) if limit else MAX_LIMIT, _position(cursor, position) if cursor else None)


def page(
    request: Request[Any, Any, Any], page: Asked[P], found: Sequence[T], position: Callable[[T], P]
) -> tuple[Sequence[T], dict[str, str]]:
    """The items of the page, and the headers that lead to the next one if there is one."""
    if len(found) <= page.limit:
        return found, {}
    items = found[: page.limit]
    cursor = base64.urlsafe_b64encode(msgspec.json.encode(position(items[-1]))).decode().rstrip("=")
    query = {name: first(request, name) for name in request.query_params if name not in {"limit", "cursor"}}
    target = urlencode(query | {"limit": page.limit, "cursor": cursor})
    path = request.app.state[PUBLIC_PATH] + request.url.path
    return items, {"link": f'<{path}?{target}>; rel="next"'}


def first(request: Request[Any, Any, Any], name: str) -> str:
    """The first value of a query parameter, `""` without one."""
    values = request.query_params.getall(name, [])
    return str(values[0]) if values else ""


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_LIMIT):
        raise Invalid(f"limit must be an integer from 1 to {MAX_LIMIT}", field="limit", value=text)
    return int(text)


def _position(cursor: str, position: type[P]) -> P:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=position)
    except (binascii.Error, msgspec.DecodeError, UnicodeError):
        raise Invalid("cursor must be one that a Link header gave", field="cursor", value=cursor) from None
