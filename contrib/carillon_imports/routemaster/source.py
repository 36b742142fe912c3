"""A running Routemaster, as its published API shows it to its root: three lists.

Nothing is judged here. Older versions leave some fields out, and answer JSON with any content type.
"""

import ipaddress
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec
from msgspec import Struct

from shared.accounts.rules.callers import bus_digest
from shared.core.errors import Invalid, Unavailable
from shared.runtime.server_settings import NO_FILES, TlsSettings
from shared.runtime.tls import client_context

PATIENCE_SECONDS: Final = 30.0
_PROBLEM = "application/problem+json"

V = TypeVar("V")


class TokenRow(Struct, frozen=True):
    """A client's token. `id` is its digest here; `place` is its place in the list, from 1."""

    id: str
    place: int
    name: str
    secret: str

    def __repr__(self) -> str:
        return f"TokenRow({self.place})"


class TopicRow(Struct, frozen=True):
    """A topic with a publisher. `id` is its name, `publisher` the digest of a token."""

    id: str
    publisher: str


class SubscriberRow(Struct, frozen=True):
    """A client's subscription. `id` is the digest of its token; `shown` is its item of the list."""

    id: str
    place: int
    shown: dict[str, Any]

    def __repr__(self) -> str:
        return f"SubscriberRow({self.place})"


class OldBus(Struct, frozen=True):
    tokens: Sequence[TokenRow]
    topics: Sequence[TopicRow]
    subscribers: Sequence[SubscriberRow]


class _ShownToken(Struct):
    token: str
    name: str | None = None


class _ShownTopic(Struct):
    name: str
    publisher: str | None = None


class Routemaster:
    """One Routemaster. Raises `Invalid` for answers that no Routemaster gives, and `Unavailable` without an answer."""

    def __init__(self, http: httpx.AsyncClient, root: httpx.BasicAuth) -> None:
        self._http = http
        self._root = root

    async def read(self) -> OldBus:
        await self._check_kind()
        tokens = await self._list("/api_tokens", list[_ShownToken])
        topics = await self._list("/topics", list[_ShownTopic])
        subscribers = await self._list("/subscribers", list[dict[str, Any]])
        return OldBus(
            [
                TokenRow(bus_digest(each.token), place, each.name or "", each.token)
                for place, each in enumerate(tokens, 1)
            ],
            [TopicRow(each.name, bus_digest(each.publisher)) for each in topics if each.publisher],
            [SubscriberRow(_digest_of(each), place, each) for place, each in enumerate(subscribers, 1)],
        )

    async def _check_kind(self) -> None:
        """Raise `Invalid` for a Carillon: the tokens that it lists are ids, and would become secrets here."""
        answer = await self._ask("/api_tokens", None)
        if answer.headers.get("content-type", "").startswith(_PROBLEM):
            raise Invalid("this is a Carillon, and no Routemaster", field="--url")

    async def _list(self, path: str, kind: type[list[V]]) -> list[V]:
        answer = await self._ask(path, self._root)
        if answer.status_code == HTTPStatus.NO_CONTENT:
            return []
        if answer.status_code != HTTPStatus.OK:
            raise _refusal(path, answer.status_code)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Invalid(f"GET {path} answers what no Routemaster does: {error}", field="--url") from None

    async def _ask(self, path: str, auth: httpx.BasicAuth | None) -> httpx.Response:
        try:
            answer = await self._http.get(path, auth=auth)
        except httpx.HTTPError as error:
            raise Unavailable(f"the Routemaster does not answer: {str(error) or type(error).__name__}") from None
        if answer.is_server_error:
            raise Unavailable(f"the Routemaster answers {answer.status_code} to GET {path}")
        return answer


@asynccontextmanager
async def open_routemaster(url: str, root_key: str, tls: TlsSettings = NO_FILES) -> AsyncIterator[Routemaster]:
    """The Routemaster at this URL, until the end of the block. `tls` contains the trusted certificates. Raises
    `Invalid` if the URL cannot be read, or would send the key unencrypted over a network."""
    _check_url(url)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log a line for each request
    async with httpx.AsyncClient(
        base_url=url, verify=client_context(tls), timeout=PATIENCE_SECONDS, trust_env=False, follow_redirects=False
    ) as http:
        yield Routemaster(http, httpx.BasicAuth(root_key, "x"))


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise Invalid(f"not a URL: {error}", field="--url") from None
    if parts.username is not None or parts.query or parts.fragment:
        raise Invalid("must be a scheme and a host alone: the key has an option of its own", field="--url")
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))):
        raise Invalid("must be https://, since the root key goes with it", field="--url")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refusal(path: str, status: int) -> Invalid:
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return Invalid(
            f"the Routemaster does not take this key for its root's (GET {path}: {status})", field="--root-key"
        )
    return Invalid(f"GET {path} answers {status}, which no Routemaster does", field="--url")


def _digest_of(shown: dict[str, Any]) -> str:
    subscriber = shown.get("subscriber")
    if not isinstance(subscriber, str):
        raise Invalid("GET /subscribers answers what no Routemaster does: one has no name", field="--url")
    return bus_digest(subscriber)
