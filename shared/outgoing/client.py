"""The HTTP client of a process on aiohttp (`shared.outgoing`)."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

import aiohttp
from yarl import URL

from shared.outgoing import Answer, Blocked, Call, Unreachable
from shared.outgoing.checks import BadUrl, authority_of, is_identity_header
from shared.outgoing.guard import NO_API, Guard, OwnApi
from shared.outgoing.resolver import GuardedResolver, Lookup, system_lookup
from shared.outgoing.retry_after import retry_after_seconds
from shared.outgoing.signing import webhook_headers

CONNECT_SECONDS = 5.0  # for one address, TLS included; a host may have several
EXCERPT_BYTES = 2_048
EXCERPT_CHARACTERS = 256
EXCERPT_SECONDS = 2.0
# Compressed bodies are not asked for and never unpacked: a small one can become an endless one.
DEFAULT_HEADERS = {"Content-Type": "application/json", "User-Agent": "Carillon", "Accept-Encoding": "identity"}


class HttpOutgoing:
    """See `shared.outgoing.Outgoing`."""

    def __init__(
        self, session: aiohttp.ClientSession, resolver: GuardedResolver, guard: Guard, timeout_seconds: float
    ) -> None:
        self._session = session
        self._resolver = resolver
        self._guard = guard
        self._timeout_seconds = timeout_seconds

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
        """Ready to call, in the running event loop; our `own` API is never called. Raises `Invalid` for what is no
        network."""
        guard = Guard(allowed_networks, own)
        resolver = GuardedResolver(guard, lookup)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, resolver=resolver, socket_factory=guard.socket),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(CONNECT_SECONDS, timeout_seconds)),
            headers=DEFAULT_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            read_bufsize=EXCERPT_BYTES,
        )
        return cls(session, resolver, guard, timeout_seconds)

    async def call(self, request: Call) -> Answer:
        authority = self._authority(request.url)
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        with self._translate_errors(authority):
            async with asyncio.timeout_at(deadline):
                response = await self._send(request)
        try:
            return Answer(
                status=response.status,
                retry_after_seconds=retry_after_seconds(
                    response.headers.get("Retry-After"), response.headers.get("Date"), request.timestamp
                ),
                excerpt=await _excerpt(response, deadline),
            )
        finally:
            response.close()

    async def close(self) -> None:
        """End the connections; calls under way become `Unreachable`."""
        await self._session.close()
        await self._resolver.close()

    def _authority(self, url: str) -> str:
        try:
            return authority_of(url, self._guard)
        except BadUrl as error:
            raise Blocked(f"the URL must not be called: {error}") from None

    async def _send(self, request: Call) -> aiohttp.ClientResponse:
        identity = webhook_headers(request.message_id, request.timestamp, request.body, *request.secrets)
        return await self._session.request(
            request.method,
            URL(request.url, encoded=True),
            headers={name: value for name, value in request.headers.items() if not is_identity_header(name)} | identity,
            data=request.body or None,
            allow_redirects=False,
        )

    @contextmanager
    def _translate_errors(self, authority: str) -> Iterator[None]:
        """Turn the driver's errors into ours. Theirs are cut off: they show whole URLs, which may hold credentials."""
        try:
            yield
        except aiohttp.ConnectionTimeoutError:
            reason = f"cannot be connected to: nothing answered within {CONNECT_SECONDS:g} s"
        except TimeoutError:
            reason = f"gave no answer within {self._timeout_seconds:g} s"
        except aiohttp.ClientConnectorDNSError:
            reason = "cannot be found: nobody knows the name"
        except (aiohttp.ClientSSLError, ssl.SSLError) as error:
            reason = f"cannot be trusted: {_tls_fault(error)}"
        except aiohttp.ClientConnectorError as error:
            reason = f"cannot be connected to: {error.os_error.strerror or error.os_error}"
        except aiohttp.ClientResponseError:
            reason = "answers, but not in HTTP"
        except (aiohttp.ClientError, OSError):
            reason = "broke off without an answer"
        else:
            return
        raise Unreachable(f"{authority} {reason}") from None


def _tls_fault(error: BaseException) -> str:
    fault = error.__cause__ or error
    if isinstance(fault, ssl.SSLCertVerificationError):
        return fault.verify_message
    return "the TLS handshake failed"


async def _excerpt(response: aiohttp.ClientResponse, deadline: float) -> str:
    body = bytearray()
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout_at(min(deadline, asyncio.get_running_loop().time() + EXCERPT_SECONDS)):
            while len(body) < EXCERPT_BYTES and (chunk := await response.content.read(EXCERPT_BYTES - len(body))):
                body += chunk
    text = body.decode(errors="replace")[:EXCERPT_CHARACTERS]
    return "".join(character if character.isprintable() else " " for character in text).strip()
