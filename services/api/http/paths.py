"""Paths, whose parts reach their routes exactly as they were sent: a `%2F` and an empty part are data (RFC 3986 2.2).

Litestar's router would decode a path before it splits it, and drop empty parts. So it is given paths whose parts are
percent-encoded, and the parameters that it finds are decoded here.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote, unquote_to_bytes

from litestar import Litestar
from litestar.exceptions import NotFoundException

_DATA = "="
"""It precedes a part that is no fixed name of a route. An encoded part has no such character."""

_END = f"/{_DATA}"


@lru_cache(maxsize=256)
def encode_path(raw: bytes) -> str:
    """The path of a request, each part in one spelling."""
    parts = raw.decode("latin-1").lstrip("/").split("/")
    return "/" + "/".join(quote(unquote_to_bytes(part), safe="") or _DATA for part in parts)


def encode_part(text: str) -> str:
    """A text as a parameter in a path, even if a route has a fixed part with this spelling."""
    return _DATA + quote(text, safe="")


def without_slash(path: str) -> str:
    """The encoded path without a slash at its end."""
    return path.removesuffix(_END)


def route_exactly(app: Litestar) -> None:
    """Let the application's router take encoded paths, and give routes decoded parameters."""
    find: Callable[..., tuple[Any, ...]] = app.asgi_router.handle_routing

    def find_exactly(path: str, method: Any) -> tuple[Any, ...]:
        handler, route, found, parameters, template = _find(find, path, method)
        try:
            return handler, route, found, {name: _decode(str(value)) for name, value in parameters.items()}, template
        except UnicodeDecodeError:
            raise NotFoundException from None

    app.asgi_router.handle_routing = find_exactly  # type: ignore[assignment] # it would be cached by its arguments


def _find(find: Callable[..., tuple[Any, ...]], path: str, method: Any) -> tuple[Any, ...]:
    fixed = without_slash(path)
    found = find(path=fixed or "/", method=method)
    # A slash at the end says nothing, except in a parameter that may have slashes: the router begins it with one.
    is_data = fixed != path and any(str(value).startswith("/") for value in found[3].values())
    return find(path=path, method=method) if is_data else found


@lru_cache(maxsize=256)
def _decode(value: str) -> str:
    return "/".join(unquote(part.removeprefix(_DATA), errors="strict") for part in value.removeprefix("/").split("/"))
