"""Guards before every route, whoever is asking: web pages of others are kept out, and answers are kept out of caches.

A browser sends along what tells who somebody is, whichever page asked it to: a proxy's cookie, or on a laptop the mere
fact of asking from it. So a request that changes something is refused when the browser says that another site made it.
Programs send neither `Origin` nor `Sec-Fetch-Site`, and pass. A page whose own name was made to lead here (DNS
rebinding) counts as the same site to its browser: it is told by its `Host`.
"""

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from litestar.datastructures import Headers
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPResponseStartEvent, HTTPScope, Message, Receive, Scope, Send
from msgspec import Struct

from services.api.http import errors
from services.api.http.errors import Misdirected
from services.api.http.paths import without_slash
from services.api.http.request_ids import header_values
from shared.domain.errors import Forbidden
from shared.runtime.metrics import REQUESTS_REFUSED
from shared.runtime.settings import ApiSettings

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
    """The rules of a deployment."""
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
    """The name in a `Host`, without its port."""
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
    """Host and port, with the scheme's default port if none is given; `""` for no host."""
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
