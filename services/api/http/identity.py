"""Identity: the person or service that a request comes from.

A person is named by `x-forwarded-email`, which only a trusted proxy may set, or by a signed-in browser; a service
shows a token. The last use of a token is known to the minute, and is written beside the requests.
"""

import asyncio
import base64
import binascii
import hmac
import ipaddress
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import structlog
from litestar.connection import ASGIConnection
from litestar.datastructures import Headers
from litestar.types import ASGIApp, Receive, Scope, Send
from prometheus_client import Counter

from services.api.http import errors
from services.api.http.errors import BasicNeeded, fresh_id, header_text, header_values
from shared.accounts.rules.apps import fold_email
from shared.accounts.rules.callers import (
    Caller,
    Token,
    TokenScope,
    User,
    bus_digest,
    check_email,
    secret_digest,
    token_caller,
    token_namespace,
    user_caller,
)
from shared.core.errors import Conflict, Unauthorized, Unavailable
from shared.drivers.http.guard import Address, unmap
from shared.runtime.cached import LINGER_SECONDS, Coalescer
from shared.runtime.clock import Clock
from shared.runtime.metrics import SIGN_INS
from shared.runtime.settings import ApiSettings
from shared.store import Store

log = structlog.get_logger(__name__)


class TokenUses:
    """Notes that tokens are used: of each one write at a time, and none while the last one is fresh."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writes: dict[str, asyncio.Task[None]] = {}

    def note(self, token: Token, now: datetime) -> None:
        """Write in the background that this token is used now."""
        if token.is_use_unnoted(now) and token.id not in self._writes:
            write = asyncio.create_task(self._write(token, now))
            self._writes[token.id] = write
            write.add_done_callback(lambda _: self._writes.pop(token.id, None))

    async def _write(self, token: Token, now: datetime) -> None:
        try:
            await self._store.tokens.note_use(token, now)
        except Unavailable as error:
            log.warning("the use of a token is not noted", token=token.id, reason=str(error))


EMAIL_HEADER = "x-forwarded-email"
PROXY_SECRET_HEADER = "x-carillon-proxy-secret"
BUS = "bus"
"""The first part of the paths below which a token of the bus is known, shown as others are."""
PATIENCE_SECONDS = 4.0
"""Clients of Routemaster, and many a load balancer, wait for five seconds."""
SESSION = "session"
"""How a person proves who they are whose browser is signed in."""
_SCHEME, _BASIC = "bearer", "basic"
_CALLER = "caller"
_SHOWN = "shown"
_LOOK = "look"
_TRUSTED_SECONDS = 1.0
_ROOT = Caller(namespace=token_namespace("bus.root_key"), name="bus.root_key", is_admin=True, allowed_apps=frozenset())
Connection = ASGIConnection[Any, Any, Any, Any]


class Proxies:
    """The networks whose peers may name a person, and what they must show for it, if anything."""

    def __init__(self, networks: Iterable[str], *, secret: str = "") -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]
        self._secret = secret.encode()

    def know(self, secrets_shown: Sequence[str]) -> bool:
        """Whether exactly one value is shown and it is right. The time of the comparison reveals nothing."""
        if not self._secret:
            return True
        return len(secrets_shown) == 1 and hmac.compare_digest(secrets_shown[0].encode(), self._secret)

    def trust(self, host: str | None) -> bool:
        """Whether this peer is a trusted proxy."""
        address = _address(host or "")
        return address is not None and any(address in network for network in self._networks)


class Directory:
    """Looks callers up. The settings' `first_admin` is a user who is there from the start: the first request makes the
    entry. Raises `Invalid` for one that is no e-mail address."""

    def __init__(self, store: Store, clock: Clock, settings: ApiSettings, *, root_key: str = "") -> None:
        if settings.first_admin:
            check_email(settings.first_admin)
        self._store = store
        self._clock = clock
        self._proxies = Proxies(settings.trusted_proxies, secret=settings.proxy_secret)
        self._first_admin = settings.first_admin
        self._root_key = root_key.encode()
        self._token = Coalescer(self._tokens, linger_seconds=LINGER_SECONDS)
        self._user = Coalescer(self._users)
        self._uses = TokenUses(store)

    async def caller(self, headers: Headers, peer: str | None, *, on_bus: bool = False) -> Caller:
        """The caller behind these headers. A token of the bus counts only `on_bus`. Raises `Unauthorized`."""
        credentials = headers.getall("authorization", [])
        bearer = [text[len(_SCHEME) :].strip() for text in credentials if text.split(" ")[0].lower() == _SCHEME]
        way = "token" if bearer else "proxy" if EMAIL_HEADER in headers else "none"
        try:
            caller = await (self._service(bearer, on_bus=on_bus) if bearer else self.person(headers, peer))
        except Unauthorized:
            _sign_ins(way, "refused").inc()
            raise
        _sign_ins(way, "known").inc()
        return caller

    async def person(self, headers: Headers, peer: str | None) -> Caller:
        if not self._proxies.know(headers.getall(PROXY_SECRET_HEADER, [])):
            raise Unauthorized(f"a bearer token is needed, or {EMAIL_HEADER} beside the right {PROXY_SECRET_HEADER}")
        emails = headers.getall(EMAIL_HEADER, [])
        if not any(emails):
            raise Unauthorized(f"a bearer token or the header {EMAIL_HEADER} is needed")
        if not self._proxies.trust(peer):
            raise Unauthorized(f"{EMAIL_HEADER} is believed only from a trusted proxy")
        if len(emails) > 1:
            raise Unauthorized("this user is not known")
        return await self.user(header_text(emails[0]))

    async def user(self, email: str) -> Caller:
        user = await self._user(email)
        if user is None and fold_email(email) == fold_email(self._first_admin):
            user = await self._add_first_admin()
        if user is None:
            raise Unauthorized("this user is not known")
        return user_caller(user)

    async def service(self, digest: str) -> Caller:
        """The service whose secret has this digest, however it was shown. A token of the bus opens nothing here. Raises
        `Unauthorized`."""
        token = await self._token(digest)
        if token is None or token.scope is TokenScope.BUS:
            raise Unauthorized("this token is not known")
        return token_caller(self._admit(token, digest))

    async def client(self, readings: Sequence[str]) -> tuple[Caller, str]:
        """The caller of basic auth, a service or the bus's root, who is an admin and no service; and the first known
        reading of the token. Raises `BasicNeeded` if no reading is known."""
        reason = ""
        for shown in readings:
            try:
                caller = await self._client(shown)
            except Unauthorized as error:
                reason = error.reason
            else:
                _sign_ins(_BASIC, "known").inc()
                return caller, shown
        _sign_ins(_BASIC, "refused").inc()
        raise BasicNeeded(reason)

    async def _client(self, shown: str) -> Caller:
        if self._root_key and hmac.compare_digest(shown.encode(), self._root_key):
            return _ROOT
        return token_caller(await self._find_known(shown, on_bus=True))

    async def _service(self, secrets_shown: list[str], *, on_bus: bool) -> Caller:
        shown = secrets_shown[0] if len(secrets_shown) == 1 else ""
        return token_caller(await self._find_known(shown, on_bus=on_bus))

    async def _find_known(self, shown: str, *, on_bus: bool) -> Token:
        """The token with this secret; its use is noted. Raises `Unauthorized`."""
        digests = [bus_digest(shown), secret_digest(shown)] if on_bus else [secret_digest(shown)]
        for digest in digests if shown else ():
            token = await self._token(digest)
            if token is not None and _is_shown_rightly(token, shown, digest):
                return self._admit(token, digest)
        if not shown:
            raise Unauthorized("a token is needed")
        raise Unauthorized("this token is not known" + ("" if on_bus else "; a token of the bus opens the bus alone"))

    def _admit(self, token: Token, digest: str) -> Token:
        """The token; its use is noted. Raises `Unauthorized` if its secret of this digest is not valid now."""
        now = self._clock.now()
        if reason := token.why_refused(digest, now):
            raise Unauthorized(reason)
        self._uses.note(token, now)
        return token

    async def _tokens(self, digests: Sequence[str]) -> list[Token | None]:
        found = await self._store.tokens.with_digests(digests)
        return [found.get(digest) for digest in digests]

    async def _users(self, emails: Sequence[str]) -> list[User | None]:
        found = await self._store.users.with_emails(emails)
        return [found.get(fold_email(email)) for email in emails]

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
    """Middleware: finds the caller before any path below one of `protected` is even looked up; below one of `basic`, by
    basic auth."""

    def __init__(
        self, app: ASGIApp, directory: Directory, protected: frozenset[str], basic: frozenset[str] = frozenset()
    ) -> None:
        self._app = app
        self._directory = directory
        self._protected = protected
        self._basic = basic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        below = first_of(scope["path"])
        try:
            if below in self._basic:
                await self._identify_client(scope)
            elif below in self._protected:
                peer = scope.get("client")
                scope["state"][_LOOK] = self._directory, time.monotonic()
                scope["state"][_CALLER] = await self._directory.caller(
                    Headers.from_scope(scope), peer[0] if peer else None, on_bus=below == BUS
                )
        except Exception as error:  # noqa: BLE001 - the table of errors knows what to tell
            await errors.send(error, send)
            return
        await self._app(scope, receive, send)

    async def _identify_client(self, scope: Scope) -> None:
        readings = read_basic(header_values(scope, b"authorization"))
        scope["state"][_LOOK] = self._directory, time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                scope["state"][_CALLER], scope["state"][_SHOWN] = await self._directory.client(readings)
        except TimeoutError:
            raise Unavailable(f"the store has not answered within {PATIENCE_SECONDS:g} s", server="store") from None


def _is_shown_rightly(token: Token, shown: str, digest: str) -> bool:
    """Whether this digest fits the token's scope: a secret could be made whose digest equals another one."""
    return (token.scope is TokenScope.BUS) == (digest == bus_digest(shown))


def read_basic(credentials: Sequence[str]) -> Sequence[str]:
    """The possible tokens in the user name of basic auth in these `Authorization` headers. Raises `BasicNeeded` unless
    there is exactly one user name."""
    scheme, _, encoded = (credentials[0] if len(credentials) == 1 else "").partition(" ")
    try:
        user = base64.b64decode(encoded.strip(), validate=True).decode() if scheme.lower() == _BASIC else ""
    except (binascii.Error, UnicodeDecodeError, ValueError):
        user = ""
    # The password follows the first colon (RFC 7617). But a token may have a colon: then it ends before the last one.
    readings = [reading for reading in (user.rpartition(":")[0], user.partition(":")[0]) if reading]
    if not readings:
        raise BasicNeeded("a token is needed, as the user name of basic auth")
    return list(dict.fromkeys(readings))


def count_sign_in(way: str, *, known: bool) -> None:
    """Count a sign-in by this way, known or refused."""
    _sign_ins(way, "known" if known else "refused").inc()


@lru_cache
def _sign_ins(way: str, outcome: str) -> Counter:
    return SIGN_INS.labels(way, outcome)


@lru_cache(maxsize=1_024)
def _address(host: str) -> Address | None:
    try:
        return unmap(ipaddress.ip_address(host))
    except ValueError:
        return None


def caller_of(connection: Connection) -> Caller:
    """The caller of a request. Raises `Unauthorized` if the path is not protected, because no caller was looked up."""
    caller = connection.scope["state"].get(_CALLER)
    if not isinstance(caller, Caller):
        raise Unauthorized("no caller is known here")
    return caller


def name_caller(scope: Any, caller: Caller, session_id: str = "") -> None:
    """Set the caller of a request from inside this process, and the browser's session if there is one. Both were just
    looked up."""
    scope["state"][_LOOK] = None, time.monotonic()
    scope["state"][_CALLER], scope["state"][SESSION] = caller, session_id


async def look_again(connection: Connection) -> None:
    """Look up the caller of one of the bus's routes again if the body took long to come, because its token may be gone.
    A request of a page brings its body along. Raises `Unauthorized`."""
    directory, looked_at = connection.scope["state"][_LOOK]
    if directory is None or time.monotonic() - looked_at <= _TRUSTED_SECONDS:
        return
    if shown := shown_by(connection):
        await directory.client([shown])
    else:
        peer = connection.client
        await directory.caller(connection.headers, peer.host if peer else None, on_bus=True)


def session_of(connection: Connection) -> str:
    """The id of the caller's session; `""` for a caller identified in another way."""
    return str(connection.scope["state"].get(SESSION, ""))


def way_of(connection: Connection) -> str:
    """How the caller was identified: `session`, `token`, or `proxy`."""
    if session_of(connection):
        return SESSION
    return "token" if caller_of(connection).is_service else "proxy"


def shown_by(connection: Connection) -> str:
    """The token that the caller of one of Routemaster's routes shows."""
    return str(connection.scope["state"].get(_SHOWN, ""))


def first_of(path: str) -> str:
    """The first part of a path."""
    return path.strip("/").split("/", maxsplit=1)[0]
