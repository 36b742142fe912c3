"""Parameters of many routes: `?limit=` and `?cursor=` of a list, with the `Link` header that leads to the next page;
`?dryRun=true`, which asks for figures alone; and `Idempotency-Key`, by which a request may be repeated.

A request whose parameter only resembles `dryRun` must never be done in earnest.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
from litestar import Request
from litestar.connection import ASGIConnection
from msgspec import Struct
from msgspec.structs import astuple

from services.api.http.identity import Connection, caller_of
from shared.core.errors import Invalid, fold_name
from shared.core.ids import Idempotency, identify
from shared.drivers.mongo.documents import Page

MAX_LIMIT = 1_000
PUBLIC_PATH = "public_path"
"""The key in the application's state for the path below which callers reach it."""
E = TypeVar("E", bound=StrEnum)
P = TypeVar("P")
T = TypeVar("T")


class Asked(Struct, Generic[P], frozen=True):
    """The page that a request asks for: at most `limit` items behind the position `after`."""

    limit: int
    after: P | None


def read_page(request: Request[Any, Any, Any], position: type[P]) -> Asked[P]:
    """The page that the query asks for; `position` is the type of this list's positions. Raises `Invalid` if `limit` is
    not 1 to 1,000, or `cursor` is malformed."""
    rule = f"limit must be an integer from 1 to {MAX_LIMIT}"
    limit = read_integer(request, "limit", most=MAX_LIMIT, default=MAX_LIMIT, rule=rule)
    cursor = first(request, "cursor")
    return Asked(limit, _position(cursor, position) if cursor else None)


def links(
    request: Request[Any, Any, Any], asked: Asked[P], found: Page[T], position: Callable[[T], P]
) -> dict[str, str]:
    if not found.more:
        return {}
    cursor = base64.urlsafe_b64encode(msgspec.json.encode(position(found[-1]))).decode().rstrip("=")
    query = [(name, text) for name, text in request.query_params.multi_items() if name not in {"limit", "cursor"}]
    target = urlencode([*query, ("limit", asked.limit), ("cursor", cursor)])
    path = request.app.state[PUBLIC_PATH] + request.url.path
    return {"link": f'<{path}?{target}>; rel="next"'}


def public_path(public_url: str) -> str:
    """The path of this API's public URL: `""`, or with a slash at the begin and none at the end."""
    return urlsplit(public_url).path.rstrip("/")


def first(request: ASGIConnection[Any, Any, Any, Any], name: str) -> str:
    if not request.scope["query_string"]:
        return ""
    values = request.query_params.getall(name, [])
    return str(values[0]) if values else ""


def read_flag(request: ASGIConnection[Any, Any, Any, Any], name: str, *, default: bool = False) -> bool:
    """A query parameter that is true or false, or the default. Raises `Invalid` for anything else."""
    text = first(request, name)
    if text not in {"", "true", "false"}:
        raise Invalid(f"{name} must be true or false", field=name, value=text)
    return text == "true" if text else default


def read_choice(
    request: ASGIConnection[Any, Any, Any, Any], name: str, choices: type[E], rule: str = "must be one of"
) -> E | None:
    """A query parameter that is one of the choices, or `None`. Raises `Invalid`."""
    text = first(request, name)
    try:
        return choices(text) if text else None
    except ValueError:
        raise Invalid(f"{rule} {', '.join(choices)}", field=name, value=text) from None


def read_integer(request: ASGIConnection[Any, Any, Any, Any], name: str, *, most: int, default: int, rule: str) -> int:
    """A query parameter from 1 to `most`, or the default. Raises `Invalid` with the rule."""
    text = first(request, name)
    return _integer(text, most, Invalid(rule, field=name, value=text)) if text else default


def _integer(text: str, most: int, refusal: Invalid) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise refusal
    return int(text)


def _position(cursor: str, position: type[P]) -> P:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        read = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=position)
        _check_storable(read)
    except (binascii.Error, msgspec.DecodeError, UnicodeError, OverflowError):
        raise Invalid("cursor must be one that a Link header gave", field="cursor", value=cursor) from None
    return read


def _check_storable(position: object) -> None:
    """Raise `OverflowError` for an instant outside the calendar, or an integer over 64 bits."""
    for part in astuple(position) if isinstance(position, Struct) else (position,):
        if isinstance(part, datetime):
            part.astimezone(UTC)
        elif isinstance(part, int):
            part.to_bytes(8, signed=True)


DRY_RUN_NAME = "dryRun"
_FOLDED = fold_name(DRY_RUN_NAME)


def is_dry_run(connection: Connection) -> bool:
    """Whether the request asks only for figures. Raises `Invalid` for a value other than true or false."""
    return read_flag(connection, DRY_RUN_NAME)


def means_dry_run(name: str) -> bool:
    """Whether a name is `dryRun` in any spelling: `dry_run`, `dryrun`, `Dry-Run`."""
    return fold_name(name) == _FOLDED


def contains_dry_run(content: bytes) -> bool:
    """Whether a body that no route reads contains such a name."""
    return _FOLDED.encode() in content.replace(b"_", b"").replace(b"-", b"").lower()


def check_metadata(metadata: dict[str, Any]) -> None:
    """Raise `Invalid` for a dry run that would send: `dryRun` in another spelling, or neither true nor false."""
    for key, value in metadata.items():
        if means_dry_run(key) and key != DRY_RUN_NAME:
            reason = f"invalid metadata: write {DRY_RUN_NAME} in place of {key!r}"
            raise Invalid(reason, field=f"metadata.{key}", value=value)
        if key == DRY_RUN_NAME and not isinstance(value, bool):
            raise Invalid(f"invalid metadata: {key} must be true or false", field=f"metadata.{key}", value=value)


KEY_CHARACTERS = 255
_READ_BYTES = 2**20  # larger bodies are compared as they came: reading one holds the loop
Sameness = tuple[str, str, bytes]
"""The things that must be the same in a repeated request: what it is about, its query, and its body."""


def idempotency_of(request: Request[Any, Any, Any], same: Sameness) -> Idempotency | None:
    """The request's idempotency key, if any. It is used after the request was read, so that a mistake can be corrected
    under the same key. Raises `Invalid` for a malformed key."""
    keys = request.headers.getall("idempotency-key", [])
    return read_key(keys, namespace=caller_of(request).namespace, same=same)


def read_key(keys: list[str], *, namespace: str, same: Sameness) -> Idempotency | None:
    """The key and digest that identify this request with an earlier one, if its caller gives a key. Raises `Invalid` if
    the key is empty, too long, not printable, or one of several."""
    if not keys:
        return None
    key = keys[0]
    printable = key.isascii() and key.isprintable()
    if len(keys) > 1 or not printable or not 1 <= len(key) <= KEY_CHARACTERS:
        rule = f"one value of 1 to {KEY_CHARACTERS} printable ASCII characters"
        raise Invalid(f"Idempotency-Key must be {rule}", field="Idempotency-Key", value=key)
    about, query, body = same
    if len(body) > _READ_BYTES:
        came = b"\0".join([about.encode(), query.encode("utf-8", "replace"), body])
        return Idempotency(f"{namespace}/{key}", hashlib.sha256(came).hexdigest())
    return identify(f"{namespace}/{key}", f"{about}?{query}", body)
