"""Checks of a call before an API stores it: pure rules, no DNS. They apply again when the call is made.

A URL must follow RFC 3986 strictly, and is later sent as written. If two parsers could disagree about the host, one of
them could be led past the guard.
"""

import ipaddress
import re
from collections.abc import Callable

from shared.clock.rules.callbacks import HEADER_BYTES, HEADERS
from shared.core.errors import Invalid
from shared.drivers.http.guard import NO_API, OUR_API, Guard, OwnApi, guard_of

URL_CHARACTERS = 2_048
METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")

_NOT_IN_URLS = re.compile(r"[^A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]|%(?![0-9A-Fa-f]{2})")
_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^\[\]:]*)(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}")  # RFC 952 forbids the underscore, but many hosts in use have one
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_NAME_CHARACTERS = 253

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_FRAMING = frozenset({
    "connection", "content-encoding", "content-length", "expect", "host", "http2-settings", "keep-alive",
    "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_OURS = ("webhook-", "carillon-")
# Proxies and clouds take these as proof of who is asking, or from where. A receiver that trusts Carillon would trust
# its users.
_IDENTITY = frozenset({
    "cf-connecting-ip", "client-ip", "forwarded", "metadata", "metadata-flavor", "remote-user", "true-client-ip",
    "x-client-ip", "x-cluster-client-ip", "x-metadata-token", "x-original-forwarded-for", "x-real-ip", "x-remote-user",
    "x-carillon-proxy-secret",
})  # fmt: skip
_IDENTITY_PREFIXES = (
    "x-aliyun-ecs-metadata-token", "x-auth-request-", "x-aws-ec2-metadata-token", "x-forwarded-", "x-goog-iap-",
    "x-google-metadata-", "x-amzn-oidc-",
)  # fmt: skip


CALLBACK_NETWORKS, PROVIDER_NETWORKS = "callbacks.allowed_networks", "providers.allowed_networks"
"""The settings that open networks to callbacks, and to providers."""


CheckUrl = Callable[..., None]
"""`check_url` with the settings of a deployment: takes a URL and its `field`."""


class BadUrl(ValueError):
    """The text breaks the rule that the message states."""


class GuardedUrl(BadUrl):
    """The text names an address in a network that is closed to calls; a setting may open it."""

    def advise(self, setting: str) -> str:
        return f"{self}; the setting {setting} can allow its network"


def check_url(
    url: str,
    *,
    allowed_networks: tuple[str, ...],
    field: str,
    setting: str = CALLBACK_NETWORKS,
    own: OwnApi = NO_API,
) -> None:
    """Raise `Invalid` unless this URL may be called; DNS is not asked. `setting` is the name of `allowed_networks`."""
    try:
        authority_of(url, guard_of(allowed_networks, own))
    except BadUrl as error:
        told = error.advise(setting) if isinstance(error, GuardedUrl) else error
        raise Invalid(f"invalid URL: {told}", field=field, value=url) from None


def check_method(method: str, field: str) -> None:
    if method not in METHODS:
        raise Invalid(f"the method is one of {', '.join(METHODS)}", field=field, value=method)


def check_headers(headers: dict[str, str], field: str) -> None:
    """Raise `Invalid` unless these may be sent with a call. The error names the header, never its value."""
    if len(headers) > HEADERS:
        raise Invalid(f"at most {HEADERS} headers", field=field)
    if sum(len(f"{name}: {value}\r\n") for name, value in headers.items()) > HEADER_BYTES:
        raise Invalid(f"at most {HEADER_BYTES:,} bytes of headers", field=field)
    seen = set[str]()
    for name, value in headers.items():
        if fault := _header_fault(name, value, seen):
            raise Invalid(fault, field=f"{field}.{name}")
        seen.add(name.lower())


def is_identity_header(name: str) -> bool:
    folded = _fold(name)
    return folded in _IDENTITY or folded.startswith(_IDENTITY_PREFIXES)


def _fold(name: str) -> str:
    """A header's name as receivers may read it: many servers take `_` for `-`."""
    return name.lower().replace("_", "-")


def authority_of(url: str, guard: Guard) -> str:
    """The host and port of this URL, as written.

    Raises `BadUrl` if the URL cannot be called, or if the guard objects to a literal address.
    """
    if len(url) > URL_CHARACTERS:
        raise BadUrl(f"it has at most {URL_CHARACTERS:,} characters")
    scheme = _SCHEME.match(url)
    if scheme is None:
        raise BadUrl("it begins with http:// or https://")
    if _NOT_IN_URLS.search(url):
        raise BadUrl("it has characters that must be percent-encoded (in a host's name: its xn-- form)")
    authority = re.split(r"[/?#]", url[scheme.end() :], maxsplit=1)[0]
    if "@" in authority:
        raise BadUrl("it names no user or password: use a header")
    _check_authority(authority, guard, 443 if scheme[0].lower().startswith("https") else 80)
    return authority


def _check_authority(authority: str, guard: Guard, default_port: int) -> None:
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None or not 1 <= int(parts["port"] or 1) <= 65_535:
        raise BadUrl("behind its host comes nothing but a port from 1 to 65535")
    host, port = parts["host"], int(parts["port"] or default_port)
    labels = host.removesuffix(".").split(".")
    if not host:
        raise BadUrl("it names no host")
    if host.startswith("["):
        _check_literal(host[1:-1], port, guard, 6)
    elif _NUMBER.fullmatch(labels[-1]):
        _check_literal(host, port, guard, 4)
    elif len(host) > _NAME_CHARACTERS or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadUrl("its host is no name that DNS could know")
    elif labels[-1].lower() == "localhost":
        objections = [guard.objection("127.0.0.1", port), guard.objection("::1", port)]
        if all(objections):
            raise (BadUrl if OUR_API in objections else GuardedUrl)(f"localhost is {objections[0]}")
    elif objection := guard.name_objection(host, port):
        raise BadUrl(f"{host} is {objection}")


def _check_literal(host: str, port: int, guard: Guard, version: int) -> None:
    if version == 6 and "%" in host:
        raise BadUrl("an address with a zone means something on one machine only")
    try:
        # The strict parser refuses 127.1, 2130706433, 0177.0.0.1 and 0x7f.0.0.1, wherever they would lead.
        known = ipaddress.IPv4Address(host) if version == 4 else ipaddress.IPv6Address(host)
    except ValueError:
        raise BadUrl("its host is no address: IPv4 is written as four decimal numbers, IPv6 in brackets") from None
    if objection := guard.objection(str(known), port):
        raise (BadUrl if objection == OUR_API else GuardedUrl)(f"{host} is {objection}")


def _header_fault(name: str, value: str, seen: set[str]) -> str | None:
    folded = _fold(name)
    if not _HEADER_NAME.fullmatch(name):
        return "a header's name is made of letters, digits and !#$%&'*+-.^_`|~"
    if not _HEADER_VALUE.fullmatch(value):
        return "a header's value is made of printable ASCII characters"
    if folded in _FRAMING:
        return "this header belongs to the connection and is set by Carillon"
    if is_identity_header(name):
        return "this header would tell the receiver who is asking, which only its own proxy may"
    if folded.startswith(_OURS):
        return f"headers that begin with {' or '.join(_OURS)} are Carillon's"
    return "this header is given twice" if name.lower() in seen else None
