"""The HTTP client of a process on aiohttp (`shared.drivers.http`).

It connects to exactly the addresses that the guard allows for a name, so a name that changes between a check and its
use (DNS rebinding) gains nothing. Retry-After (RFC 9110, 10.2.3) says how long a server asks to be left alone.
"""

import asyncio
import errno
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Self
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from cachetools import LRUCache
from yarl import URL

from shared.core.errors import Unavailable
from shared.drivers.http import Answer, Blocked, Call, NotConnected, PostedAnswer, Posting, Unreachable
from shared.drivers.http.checks import BadUrl, authority_of, is_identity_header
from shared.drivers.http.departure import (
    HEAD_BYTES,
    HEAD_LINES,
    BoundedConnector,
    DepartingRequest,
    Departure,
    StaleConnection,
)
from shared.drivers.http.guard import NO_API, Guard, Lookup, NameLookups, OwnApi, block, name_owner
from shared.drivers.http.signing import webhook_headers

MOST_SECONDS = 86_400.0
_SECONDS = re.compile(r"[0-9]+")
_MOST_CHARACTERS = 64  # a date has 29; the limit bounds the time of parsing


def retry_after_seconds(value: str | None, date: str | None, now: int) -> float | None:
    """Seconds from now, 0 to a day, or `None` for a missing or unreadable header.

    `date` is the answer's own Date header. A time is read by the clock of the server that wrote it, or by `now` (epoch
    seconds) if that header is missing.
    """
    if value is None:
        return None
    text = value.strip()[:_MOST_CHARACTERS]
    if _SECONDS.fullmatch(text):
        return min(float(text), MOST_SECONDS)
    until = _instant(text)
    if until is None:
        return None
    since = _instant((date or "")[:_MOST_CHARACTERS])
    return min(max(until - (now if since is None else since), 0.0), MOST_SECONDS)


def _instant(text: str) -> float | None:
    try:
        read = parsedate_to_datetime(text)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def system_lookup(host: str) -> list[str]:
    """The addresses in /etc/hosts and DNS, of families that this machine has an address of."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(sockaddr[0]) for *_, sockaddr in found]


class GuardedResolver(AbstractResolver):
    """The only source of addresses for aiohttp."""

    def __init__(self, guard: Guard, names: NameLookups) -> None:
        self._guard = guard
        self._names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses that may be called. Raises `OSError` for an unknown name."""
        found = await self._names.find(host)
        objections = {address: self._guard.objection(address, port) for address in found}
        allowed = [address for address, objection in objections.items() if objection is None]
        if not allowed:
            self._names.forget(host)
            raise block(host, objections.values())
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in allowed
        ]

    async def close(self) -> None:
        self._names.close()


LOOKUP_PATIENCE_SECONDS = 5.0  # for a thread to become free
CONNECT_SECONDS = 5.0  # for one address, including TLS; a host may have several
EXCERPT_BYTES = 2_048
EXCERPT_CHARACTERS = 256
EXCERPT_SECONDS = 2.0
POSTED_BODY_BYTES = 16_384
_REMEMBERED_URLS = 1_000
_OUR_LACK = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Compressed bodies are not asked for and never unpacked: a small one can unpack without end.
DEFAULT_HEADERS = {"Content-Type": "application/json", "User-Agent": "Carillon", "Accept-Encoding": "identity"}


class HttpOutgoing:
    def __init__(
        self, session: aiohttp.ClientSession, resolver: GuardedResolver, guard: Guard, timeout_seconds: float
    ) -> None:
        self._session = session
        self._resolver = resolver
        self._guard = guard
        self._timeout_seconds = timeout_seconds
        self._kept = WeakSet[asyncio.BaseProtocol]()
        self._authorities = LRUCache[str, str](_REMEMBERED_URLS)

    @classmethod
    def open(
        cls,
        *,
        allowed_networks: tuple[str, ...],
        timeout_seconds: float,
        connections: int,
        own: OwnApi = NO_API,
        lookup: Lookup = system_lookup,
    ) -> Self:
        """Open a client in the running event loop. `connections` 0 means any number."""
        guard = Guard(allowed_networks, own)
        names = NameLookups(lookup, patience_seconds=min(LOOKUP_PATIENCE_SECONDS, timeout_seconds / 2))
        resolver = GuardedResolver(guard, names)
        session = aiohttp.ClientSession(
            # `names` caches addresses. With aiohttp's cache, one owner would wait for another owner's lookup.
            connector=BoundedConnector(
                limit=connections, resolver=resolver, use_dns_cache=False, socket_factory=guard.socket
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(CONNECT_SECONDS, timeout_seconds)),
            headers=DEFAULT_HEADERS,
            request_class=DepartingRequest,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            read_bufsize=EXCERPT_BYTES,
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
            max_headers=HEAD_LINES + 1,
        )
        return cls(session, resolver, guard, timeout_seconds)

    async def call(self, request: Call) -> Answer:
        authority = self._authority(request.url)
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        owner = name_owner.set(request.owner)
        try:
            with _driver_errors(self._timeout_seconds):
                async with asyncio.timeout_at(deadline):
                    response = await self._send(request)
        except _DriverFailure as failure:
            raise Unreachable(f"{authority} {failure}") from None
        finally:
            name_owner.reset(owner)
        try:
            return Answer(
                status=response.status,
                retry_after_seconds=_retry_after(response, request.timestamp),
                excerpt=_one_line(await _read_beginning(response, EXCERPT_BYTES, deadline)),
            )
        finally:
            response.close()

    async def post(self, posting: Posting) -> PostedAnswer:
        authority = self._authority(posting.url)
        deadline = asyncio.get_running_loop().time() + posting.timeout_seconds
        departure = Departure(posting.before_bytes, self._kept)
        try:
            with _driver_errors(posting.timeout_seconds):
                async with asyncio.timeout_at(deadline):
                    response = await self._send_once(posting, departure)
        except _DriverFailure as failure:
            raise (Unreachable if departure.left else NotConnected)(f"{authority} {failure}") from None
        except Unavailable as error:
            raise NotConnected(str(error)) from None
        try:
            return PostedAnswer(
                status=response.status,
                retry_after_seconds=_retry_after(response, int(time.time())),
                headers={name.lower(): value for name, value in response.headers.items()},
                body=await _read_beginning(response, POSTED_BODY_BYTES, deadline),
            )
        finally:
            response.close()

    async def close(self) -> None:
        """End the connections; calls under way become `Unreachable`."""
        await self._session.close()
        await self._resolver.close()

    def _authority(self, url: str) -> str:
        if known := self._authorities.get(url):
            return known
        try:
            authority = authority_of(url, self._guard)
        except BadUrl as error:
            raise Blocked(f"the URL must not be called: {error}") from None
        self._authorities[url] = authority
        return authority

    async def _send(self, request: Call) -> aiohttp.ClientResponse:
        identity = webhook_headers(request.message_id, request.timestamp, request.body, *request.secrets)
        return await self._session.request(
            request.method,
            URL(request.url, encoded=True),
            headers={name: value for name, value in request.headers.items() if not is_identity_header(name)} | identity,
            data=request.body or None,
            allow_redirects=False,
        )

    async def _send_once(self, posting: Posting, departure: Departure) -> aiohttp.ClientResponse:
        while not self._session.closed:
            # No byte has left on a stale connection, so the next connection is no repetition.
            with suppress(StaleConnection), departure.of_this_task():
                return await self._session.request(
                    posting.method,
                    URL(posting.url, encoded=True),
                    headers=posting.headers,
                    data=posting.body or None,
                    allow_redirects=False,
                )
        raise aiohttp.ClientConnectionError("the client is closed")


class _DriverFailure(Exception):
    """The reason for a missing answer, to be read after the target's name."""


@contextmanager
def _driver_errors(timeout_seconds: float) -> Iterator[None]:
    """Turn the driver's errors into Carillon's. The driver's show whole URLs, which may hold credentials. Raises
    `Unavailable` if this process lacks a resource."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError:
        reason = f"cannot be connected to: nothing answered within {CONNECT_SECONDS:g} s"
    except TimeoutError:
        reason = f"gave no answer within {timeout_seconds:g} s"
    except aiohttp.ClientConnectorDNSError:
        reason = "cannot be found: no DNS server knows the name"
    except (aiohttp.ClientSSLError, ssl.SSLError) as error:
        fault = error.__cause__ or error
        told = fault.verify_message if isinstance(fault, ssl.SSLCertVerificationError) else "the TLS handshake failed"
        reason = f"cannot be trusted: {told}"
    except aiohttp.ClientConnectorError as error:
        if error.os_error.errno in _OUR_LACK:
            raise Unavailable(f"this process cannot open a connection: {_system_fault(error.os_error)}") from None
        reason = f"cannot be connected to: {_system_fault(error.os_error)}"
    except aiohttp.ClientResponseError:
        reason = "answers, but not in HTTP"
    except (aiohttp.ClientError, OSError):
        reason = "broke off without an answer"
    else:
        return
    raise _DriverFailure(reason) from None


def _system_fault(error: OSError) -> str:
    """The system's text, because asyncio's shows the address of a name."""
    return os.strerror(error.errno) if error.errno else str(error)


def _retry_after(response: aiohttp.ClientResponse, now: int) -> float | None:
    return retry_after_seconds(response.headers.get("Retry-After"), response.headers.get("Date"), now)


async def _read_beginning(response: aiohttp.ClientResponse, most: int, deadline: float) -> bytes:
    if response.content.is_eof():
        return response.content.read_nowait(most)
    body = bytearray()
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout_at(min(deadline, asyncio.get_running_loop().time() + EXCERPT_SECONDS)):
            while len(body) < most and (chunk := await response.content.read(most - len(body))):
                body += chunk
    return bytes(body)


def _one_line(body: bytes) -> str:
    text = body.decode(errors="replace")[:EXCERPT_CHARACTERS]
    return "".join(character if character.isprintable() else " " for character in text).strip()
