"""Guards before every route: web pages of other sites are kept out, the requests of one namespace have a rate, and all
bodies together have a limit of memory.

The parts of a path reach their routes exactly as they were sent: a `%2F` and an empty part stay what they are.
"""

import ipaddress
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil
from typing import Any
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

from litestar import Litestar
from litestar.datastructures import Headers
from litestar.enums import ScopeType
from litestar.exceptions import NotFoundException
from litestar.types import ASGIApp, HTTPResponseStartEvent, HTTPScope, Message, Receive, ReceiveMessage, Scope, Send
from msgspec import Struct

from services.api.http import errors
from services.api.http.errors import Misdirected, header_values
from shared.accounts.rules.callers import Caller
from shared.core.errors import Forbidden, TooMany, Unavailable
from shared.core.rates import Rate
from shared.runtime.metrics import REQUESTS_REFUSED
from shared.runtime.settings import ApiSettings

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


LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
# It tells strangers nothing but whether all is well, and orchestrators ask for it by a pod's address.
_ANY_HOST_PATH = "/healthcheck"
# The token in the path is all the authority: a browser adds none. Mail programs call these from pages of their own.
_TOKEN_PATHS = "/u/"
_READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_BROWSER_HEADERS = frozenset({b"origin", b"sec-fetch-site", b"cookie"})
_SAME_SITE = frozenset({"same-origin", "none"})
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SECURITY_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class GuardRules(Struct, frozen=True):
    """Which names this API answers to (`None`: any), and whose pages may change something here."""

    hosts: frozenset[str] | None
    origins: frozenset[str]
    public_host: str


def guard_rules(settings: ApiSettings) -> GuardRules:
    public = urlsplit(settings.public_url)
    names = frozenset(host_name(host) for host in settings.allowed_hosts)
    if not names and _is_loopback(settings.host):
        names = LOOPBACK_NAMES
    return GuardRules(
        hosts=names | ({host_name(public.netloc)} if public.netloc else set()) if names else None,
        origins=frozenset(origin.lower() for origin in settings.allowed_origins),
        public_host=_authority(public.scheme, public.netloc),
    )


class Guarded:
    """Middleware: refuses what the rules forbid, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, rules: GuardRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                _secure(message)
            await send(message)

        try:
            self._check(scope)
        except (Forbidden, Misdirected) as error:
            REQUESTS_REFUSED.labels("host" if isinstance(error, Misdirected) else "cross_site").inc()
            await errors.send(error, send_secured)
            return
        await self._app(scope, receive, send_secured)

    def _check(self, scope: HTTPScope) -> None:
        if without_slash(scope["path"]) != _ANY_HOST_PATH and self._rules.hosts is not None:
            check_host(header_values(scope, b"host"), self._rules)
        if scope["path"].startswith(_TOKEN_PATHS):
            return
        if scope["method"] not in _READING_METHODS and _may_be_a_browser(scope):
            check_origin(Headers.from_scope(scope), self._rules)


def _may_be_a_browser(scope: HTTPScope) -> bool:
    """Whether the request has a header that `check_origin` reads; programs send none."""
    return any(name in _BROWSER_HEADERS for name, _ in scope["headers"])


def check_host(hosts: Sequence[str], rules: GuardRules) -> None:
    """Raise `Misdirected` unless the request names this API."""
    if rules.hosts is None:
        return
    if len(hosts) != 1 or host_name(hosts[0]) not in rules.hosts:
        reason = "this API does not answer to this name: api.allowed_hosts lists those that it answers to"
        raise Misdirected(reason, field="host", value=", ".join(hosts))


def check_origin(headers: Headers, rules: GuardRules) -> None:
    """Raise `Forbidden` if the browser says that another site makes this request, or may have made it, because browsers
    add cookies by themselves."""
    origins, sites = headers.getall("origin", []), headers.getall("sec-fetch-site", [])
    if len(origins) == 1 and origins[0].lower() in rules.origins:
        return
    if headers.get("cookie") and not origins and not sites:
        raise Forbidden("with a cookie goes Origin or Sec-Fetch-Site, as browsers send them", field="cookie")
    if not _SAME_SITE.issuperset(sites):
        raise Forbidden("pages of other sites change nothing here", field="sec-fetch-site", value=", ".join(sites))
    for origin in origins:
        if not _is_ours(origin, headers.getall("host", []), rules):
            reason = "pages of other sites change nothing here, but for those that api.allowed_origins lists"
            raise Forbidden(reason, field="origin", value=origin)


def host_name(host: str) -> str:
    name = host.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0].removesuffix(".")


def _is_ours(origin: str, hosts: Sequence[str], rules: GuardRules) -> bool:
    """Whether the origin is the target of the request. Its scheme is not compared, because a proxy may have ended
    TLS."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    authority = _authority(parts.scheme, parts.netloc)
    if not authority:
        return False
    return authority == rules.public_host or [authority] == [_authority(parts.scheme, host) for host in hosts]


def _authority(scheme: str, netloc: str) -> str:
    if not netloc or scheme not in _DEFAULT_PORTS:
        return ""
    name = host_name(netloc)
    port = netloc.strip().lower()[len(name) :].removeprefix(".").removeprefix(":")
    return f"{name}:{port or _DEFAULT_PORTS[scheme]}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _secure(message: HTTPResponseStartEvent) -> None:
    """Add missing headers. The files of the documentation have cache headers of their own."""
    headers = list(message["headers"])
    present = {name.lower() for name, _ in headers}
    message["headers"] = headers + [(name, value) for name, value in _SECURITY_HEADERS if name not in present]


_BURST_SECONDS = 2
_STOPS = ("/pause", "/stop")
_SLASHES_OF_A_THING = 2  # as in /schedules/{key}, and one more below /bus; a move of it has one more
_NAMESPACES = 10_000


class Limited:
    """Middleware behind `IdentifyCaller`: refuses the requests of a namespace that sends too many."""

    def __init__(self, app: ASGIApp, settings: ApiSettings, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._per_second = settings.requests_per_second
        self._rate = Rate(self._per_second, burst=_BURST_SECONDS * self._per_second, keys=_NAMESPACES)
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = scope["state"].get("caller")
        if isinstance(caller, Caller) and not _stops_something(scope):
            wait = self._rate.wait(caller.namespace, self._monotonic())
            if wait > 0:
                reason = f"more than {self._per_second} requests a second of {caller.namespace}"
                await errors.send(TooMany(reason, retry_after_seconds=ceil(wait)), send)
                return
        await self._app(scope, receive, send)


def _stops_something(scope: Scope) -> bool:
    """By method and path, because the route is not known yet. A schedule's key may be `pause` or `stop`."""
    method, path = scope.get("method"), without_slash(scope["path"])
    if method == "DELETE":
        return True
    slashes = _SLASHES_OF_A_THING + path.startswith("/bus/")
    return method in {"POST", "PUT"} and path.endswith(_STOPS) and path.count("/") > slashes


SMALL_BYTES = 64 * 2**10


class Bodies:
    """Middleware: counts the bodies that routes hold. A caller that brings more than there is room for is answered 503.

    A body takes the room of its declared length when it begins: else several that come at once would take a part each,
    and none would get in. So much of each body is always taken as most bodies have, for they are bounded by the number
    of connections. Routes that pass a body on as it comes (`streams`) hold nothing.
    """

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self._app = app
        self._limit = limit_bytes
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        held = received = 0
        declared = _declared_bytes(scope)

        async def receive_counted() -> ReceiveMessage:
            nonlocal held, received
            message = await receive()
            if message["type"] == "http.request" and not scope["route_handler"].opt.get("streams"):
                received += len(message["body"])
                more = max(received, declared) - held
                if held + more > SMALL_BYTES and self._held + more > self._limit:
                    raise Unavailable("the bodies of other requests take all the room that there is for them")
                held += more
                self._held += more
            return message

        try:
            await self._app(scope, receive_counted, send)
        finally:
            self._held -= held


def _declared_bytes(scope: Scope) -> int:
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(declared) if declared.isdigit() else 0
