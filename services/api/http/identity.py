"""Who is asking.

A person is named by `x-forwarded-email`, which is believed only when the peer itself is a trusted proxy: whoever can
reach the port past the proxy could write that header. Where an address proves too little, the proxy also shows a secret
in `x-carillon-proxy-secret`. A service shows `Authorization: Bearer <token>`, of which only the SHA-256 is known here.
Everything below a path with a route that is not for everybody asks for an identity first, so that a stranger learns
nothing, not even which paths there are.
"""

import hmac
import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from litestar.connection import ASGIConnection
from litestar.datastructures import Headers
from litestar.types import ASGIApp, Receive, Scope, Send
from prometheus_client import Counter

from services.api.http import errors
from services.api.http.ids import fresh_id
from services.api.http.token_uses import TokenUses
from shared.domain.accounts.callers import Caller, Token, User, check_email, secret_digest, token_caller, user_caller
from shared.domain.errors import Conflict, Unauthorized
from shared.outgoing.guard import Address, unmap
from shared.runtime.clock import Clock
from shared.runtime.coalescer import Coalescer
from shared.runtime.metrics import SIGN_INS
from shared.runtime.settings import ApiSettings
from shared.store import Store

EMAIL_HEADER = "x-forwarded-email"
PROXY_SECRET_HEADER = "x-carillon-proxy-secret"
_SCHEME = "bearer"
_CALLER = "caller"

Connection = ASGIConnection[Any, Any, Any, Any]


class Proxies:
    """The networks whose peers may name a person, and what they must show for it, if anything."""

    def __init__(self, networks: Iterable[str], *, secret: str = "") -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]
        self._secret = secret.encode()

    def know(self, secrets_shown: Sequence[str]) -> bool:
        """Whether this is what they show: one value, the right one. How long the answer takes tells nothing about
        it."""
        if not self._secret:
            return True
        return len(secrets_shown) == 1 and hmac.compare_digest(secrets_shown[0].encode(), self._secret)

    def trust(self, host: str | None) -> bool:
        """Whether a peer at this address is one of them."""
        address = _address(host or "")
        return address is not None and any(address in network for network in self._networks)


class Directory:
    """Looks callers up. The settings' `first_admin` is a user who is there from the start: the first request makes the
    entry. Raises `Invalid` for one that is no e-mail address."""

    def __init__(self, store: Store, clock: Clock, settings: ApiSettings) -> None:
        if settings.first_admin:
            check_email(settings.first_admin)
        self._store = store
        self._clock = clock
        self._proxies = Proxies(settings.trusted_proxies, secret=settings.proxy_secret)
        self._first_admin = settings.first_admin
        self._token = Coalescer(self._tokens)
        self._user = Coalescer(self._users)
        self._uses = TokenUses(store)

    async def caller(self, headers: Headers, peer: str | None) -> Caller:
        """The identity behind these headers.

        Raises:
            Unauthorized: there is none, or nobody knows it, or the peer may not vouch for it.
        """
        credentials = headers.getall("authorization", [])
        bearer = [text[len(_SCHEME) :].strip() for text in credentials if text.split(" ")[0].lower() == _SCHEME]
        way = "token" if bearer else "proxy" if EMAIL_HEADER in headers else "none"
        try:
            caller = await (self._service(bearer) if bearer else self._person(headers, peer))
        except Unauthorized:
            _sign_ins(way, "refused").inc()
            raise
        _sign_ins(way, "known").inc()
        return caller

    async def _service(self, secrets_shown: list[str]) -> Caller:
        shown = secrets_shown[0] if len(secrets_shown) == 1 else ""
        digest = secret_digest(shown)
        token = await self._token(digest) if shown else None
        if token is None:
            raise Unauthorized("this token is not known")
        now = self._clock.now()
        if reason := token.why_refused(digest, now):
            raise Unauthorized(reason)
        self._uses.note(token, now)
        return token_caller(token)

    async def _person(self, headers: Headers, peer: str | None) -> Caller:
        if not self._proxies.know(headers.getall(PROXY_SECRET_HEADER, [])):
            raise Unauthorized(f"a bearer token is needed, or {EMAIL_HEADER} beside the right {PROXY_SECRET_HEADER}")
        emails = headers.getall(EMAIL_HEADER, [])
        if not any(emails):
            raise Unauthorized(f"a bearer token or the header {EMAIL_HEADER} is needed")
        if not self._proxies.trust(peer):
            raise Unauthorized(f"{EMAIL_HEADER} is believed only from a trusted proxy")
        user = await self._user(emails[0]) if len(emails) == 1 else None
        if user is None and emails == [self._first_admin]:
            user = await self._add_first_admin()
        if user is None:
            raise Unauthorized("this user is not known")
        return user_caller(user)

    async def _tokens(self, digests: Sequence[str]) -> list[Token | None]:
        found = await self._store.tokens.with_digests(digests)
        return [found.get(digest) for digest in digests]

    async def _users(self, emails: Sequence[str]) -> list[User | None]:
        found = await self._store.users.with_emails(emails)
        return [found.get(email) for email in emails]

    async def _add_first_admin(self) -> User | None:
        now = self._clock.now_ns()
        admin = User(
            id=fresh_id(now),
            email=self._first_admin,
            is_admin=True,
            created_by=self._first_admin,
            created_at=now,
            updated_at=now,
        )
        try:
            await self._store.users.add(admin)
        except Conflict:
            return await self._user(self._first_admin)
        return admin


class IdentifyCaller:
    """Middleware: finds the caller before any path below one of `protected` is even looked up."""

    def __init__(self, app: ASGIApp, directory: Directory, protected: frozenset[str]) -> None:
        self._app = app
        self._directory = directory
        self._protected = protected

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if first_of(scope["path"]) in self._protected:
            peer = scope.get("client")
            try:
                caller = await self._directory.caller(Headers.from_scope(scope), peer[0] if peer else None)
            except Exception as error:  # noqa: BLE001 - the table of errors knows what to tell
                await errors.send(error, send)
                return
            scope["state"][_CALLER] = caller
        await self._app(scope, receive, send)


@lru_cache
def _sign_ins(way: str, outcome: str) -> Counter:
    return SIGN_INS.labels(way, outcome)


@lru_cache(maxsize=1_024)
def _address(host: str) -> Address | None:
    """The address of a peer; `None` for a peer without."""
    try:
        return unmap(ipaddress.ip_address(host))
    except ValueError:
        return None


def has_caller(connection: Connection) -> bool:
    """Whether the path of a request is protected: then its caller is known by now."""
    return connection.scope["state"].get(_CALLER) is not None


def caller_of(connection: Connection) -> Caller:
    """The caller behind a request.

    Raises:
        Unauthorized: the path is not protected, so nobody was looked up.
    """
    caller = connection.scope["state"].get(_CALLER)
    if not isinstance(caller, Caller):
        raise Unauthorized("nobody is known here")
    return caller


def first_of(path: str) -> str:
    """The first part of a path."""
    return path.strip("/").split("/", maxsplit=1)[0]
