"""Weak spots of settings in production: connections that others could read or impersonate, and published example
values. `tls.required` makes them faults; `carillon doctor` warns of the connections."""

import base64
import ipaddress
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from shared.runtime.settings import Settings

_CLEAR = "is not encrypted"
_UNVERIFIED = "is encrypted, but the server is not verified"
_YES = frozenset({"true", "1"})
_OF_A_LAPTOP = b"carillon on a laptop"
_EXAMPLE_HOSTS = (".example.com", ".example.org", ".example.net")


class _ServerUrl(Struct, frozen=True):
    """The parts of a server's URL that decide how a client connects."""

    scheme: str
    hosts: tuple[str, ...]
    login: str
    options: Mapping[str, str]


def find_weaknesses(settings: Settings) -> list[tuple[str, str]]:
    """Each setting whose connection is weak, with a sentence. URLs are not repeated: they hold passwords."""
    rules: dict[str, tuple[str, Callable[[_ServerUrl], str]]] = {
        "store.url": (settings.store.url, _judge_mongodb),
        "broker.url": (settings.broker.url, _judge_rabbitmq),
        "broker.management_url": (settings.broker.management_url, _judge_scheme),
        "stream.url": (settings.stream.url, _judge_scheme),
        "audience.url": (settings.audience.url, _judge_postgresql),
        "blobs.endpoint_url": (settings.blobs.endpoint_url, _judge_scheme),
        "mail.url": (settings.mail.url, _judge_mail),
    }
    found: list[tuple[str, str]] = []
    for field, (url, judge) in rules.items():
        server = _read(url)
        if server is not None and not all(map(is_local, server.hosts)) and (what := judge(server)):
            found.append((field, f"the connection {what}"))
    return found


def find_examples(settings: Settings) -> list[tuple[str, str]]:
    """Each setting that has a published example value, with a sentence."""
    found: list[tuple[str, str]] = []
    keys = [key for text in settings.providers.secret_keys.split(",") for key in text.split()]
    if any(map(_is_of_a_laptop, keys)):
        found.append(("providers.secret_keys", "the key of a laptop, which anybody knows: `openssl rand -base64 32`"))
    if _is_of_a_laptop(settings.callbacks.signing_secret.removeprefix("whsec_")):
        sentence = "the secret of a laptop, which anybody knows: `whsec_` and the output of `openssl rand -base64 32`"
        found.append(("callbacks.signing_secret", sentence))
    host = urlsplit(settings.api.public_url).hostname or ""
    if f".{host}".endswith(_EXAMPLE_HOSTS):
        found.append(("api.public_url", f"{host} is an example: name the address by which callers reach this API"))
    return found


def _is_of_a_laptop(key: str) -> bool:
    try:
        return base64.b64decode(key).startswith(_OF_A_LAPTOP)
    except ValueError:
        return False


def _judge_mongodb(server: _ServerUrl) -> str:
    options = server.options
    tls = options.get("tls", options.get("ssl", "true" if server.scheme == "mongodb+srv" else ""))
    if tls not in _YES:
        return f"{_CLEAR}: tls=true in the URL encrypts it"
    loose = ("tlsinsecure", "tlsallowinvalidcertificates", "tlsallowinvalidhostnames")
    return _UNVERIFIED if any(options.get(name) in _YES for name in loose) else ""


def _judge_rabbitmq(server: _ServerUrl) -> str:
    if server.scheme == "amqp":
        return f"{_CLEAR}: amqps:// is"
    return _UNVERIFIED if server.options.get("no_verify_ssl", "0") != "0" else ""


def _judge_scheme(server: _ServerUrl) -> str:
    encrypted = {"http": "https://", "kafka": "kafka+ssl://"}.get(server.scheme)
    return f"{_CLEAR}: {encrypted} is" if encrypted else ""


def _judge_postgresql(server: _ServerUrl) -> str:
    match server.options.get("sslmode", "prefer"):
        case "verify-full":
            return ""
        case "disable" | "allow":
            return f"{_CLEAR}: sslmode=verify-full in the URL encrypts it"
        case mode:
            return f"does not verify who answers (sslmode={mode}): sslmode=verify-full in the URL does"


def _judge_mail(server: _ServerUrl) -> str:
    required = server.options.get("tls") == "required" or (not server.options and bool(server.login))
    encrypted = server.scheme != "smtp" or required
    return "" if encrypted else "may not be encrypted: smtps://, or ?tls=required in the URL, sees to it"


def _read(url: str) -> _ServerUrl | None:
    """`None` for a setting without a server: empty, a folder, or unreadable (other checks refuse that)."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme in {"", "file", "local", "memory", "s3"}:
        return None
    login, _, hosts = parts.netloc.rpartition("@")
    options = {name.lower(): value for name, value in parse_qsl(parts.query, keep_blank_values=True)}
    named = options.get("host", hosts) if parts.scheme.startswith("postgres") else hosts
    return _ServerUrl(parts.scheme, tuple(map(_without_port, named.split(","))), login, options)


def _without_port(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return unquote(address.partition(":")[0])


def is_local(host: str) -> bool:
    """Whether the name means this machine: empty, the path of a socket, or loopback."""
    if not host or host.startswith("/") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
