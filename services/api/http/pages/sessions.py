"""The reader of a page: a signed-in browser, or the person whom a trusted proxy names.

A person signs in with a token. The cookie has 256 random bits; the store has their SHA-256. The cookie opens pages
only: the API's own routes ignore it.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from cachetools import TTLCache
from litestar import Request
from msgspec import Struct

from services.api.http.errors import header_values
from services.api.http.identity import SESSION, Directory, count_sign_in
from shared.accounts.rules.callers import LONGEST, Caller, WebSession, secret_digest
from shared.core.errors import Unauthorized
from shared.runtime.cached import Cached
from shared.runtime.clock import Clock
from shared.store import Store

HTTPS = "https"
"""The key in the application's state that tells whether `api.public_url` is an `https` one."""

REFRESH = "hx-request"
"""The header of what a script asks for."""

STALE_SECONDS = 2.0
"""How long a page may go on refreshing after its session has ended."""

_MOST_OPEN, _OPEN_SECONDS = 2_000, 30.0
_USED = "x-used"
_PLAIN, _SECURE = "carillon", "__Host-carillon"
_AGENT_CHARACTERS, _COOKIE_CHARACTERS = 200, 100


Found = TypeVar("Found")


class Visitor(Struct, frozen=True):
    """The reader of a page. `session_id` is `""` for a person whom a proxy names."""

    caller: Caller
    session_id: str = ""


class SignedIn(Struct, frozen=True):
    session: WebSession
    caller: Caller


class OpenSessions(Generic[Found]):
    """Looks up the sessions of all open pages by one `find`, every two seconds. `find` returns those that are still
    good, by id, and raises `Unavailable`."""

    def __init__(
        self,
        find: Callable[[Sequence[str]], Awaitable[Mapping[str, Found]]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._open: TTLCache[str, None] = TTLCache(_MOST_OPEN, _OPEN_SECONDS)
        self._found = Cached(self._find_open, seconds=STALE_SECONDS, monotonic=monotonic)

    async def get(self, session_id: str) -> Found | None:
        """This session, at most two seconds old."""
        found = await self._found.get()
        if session_id not in found:
            found = await self._find([session_id])
        if session_id in found:
            self._open[session_id] = None
        return found.get(session_id)

    async def _find_open(self) -> Mapping[str, Found]:
        return await self._find(sorted(self._open)) if self._open else {}


class Visitors:
    def __init__(self, store: Store, directory: Directory, clock: Clock) -> None:
        self._sessions = store.sessions
        self._directory = directory
        self._clock = clock
        self._open_sessions = OpenSessions(self._find_all)

    async def find(self, request: Request[Any, Any, Any]) -> Visitor | None:
        """The reader; `None` for a stranger, or if the session's token or user is gone."""
        shown = _read_cookie(request)
        found = await self._find_signed_in(request, secret_digest(shown)) if shown else None
        if found is not None:
            await self._note_use(request, found.session)
            return Visitor(found.caller, found.session.id)
        peer = request.client
        with suppress(Unauthorized):
            return Visitor(await self._directory.person(request.headers, peer.host if peer else None))
        return None

    async def _find_signed_in(self, request: Request[Any, Any, Any], session_id: str) -> SignedIn | None:
        if is_refresh(request):
            found = await self._open_sessions.get(session_id)
            # This copy may be old: another window may have prolonged the session.
            if found is None or not found.session.is_over(self._clock.now()):
                return found
        return (await self._find_all([session_id])).get(session_id)

    async def _find_all(self, session_ids: Sequence[str]) -> Mapping[str, SignedIn]:
        now, known = self._clock.now(), await self._sessions.with_ids(session_ids)
        sessions = [each for each in known.values() if not each.is_link and not each.is_over(now)]
        owners = await asyncio.gather(*map(self._find_owner, sessions))
        pairs = zip(sessions, owners, strict=True)
        return {session.id: SignedIn(session, owner) for session, owner in pairs if owner is not None}

    async def _find_owner(self, session: WebSession) -> Caller | None:
        with suppress(Unauthorized):
            if session.email:
                return await self._directory.user(session.email)
            return await self._directory.service(session.token_digest)
        return None

    async def _note_use(self, request: Request[Any, Any, Any], session: WebSession) -> None:
        """Note the use of the session, unless an unattended page refreshes itself."""
        now = self._clock.now()
        if session.is_sight_unnoted(now) and _is_attended(request):
            await self._sessions.note_sight(session, now)

    async def sign_in(self, request: Request[Any, Any, Any], token: str) -> str:
        """Begin a session for the service with this token; returns the value of `Set-Cookie`. The session is always
        new, so an attacker cannot plant a known session in another browser. The browser's last one ends. Raises
        `Unauthorized` for an unknown token."""
        digest = secret_digest(token)
        try:
            caller = await self._directory.service(digest)
        except Unauthorized:
            count_sign_in(SESSION, known=False)
            raise
        count_sign_in(SESSION, known=True)
        return await self._begin(request, caller, token_digest=digest)

    async def open_link(self, request: Request[Any, Any, Any], secret: str) -> str:
        """Begin a session by a link, which works once; returns the value of `Set-Cookie`. Raises `Unauthorized` if the
        link is gone."""
        link = await self._sessions.take_link(secret_digest(secret)) if secret else None
        is_good = link is not None and link.ends_at > self._clock.now()
        count_sign_in(SESSION, known=is_good)
        if link is None or not is_good:
            raise Unauthorized(
                "this link was used before, or is over ten minutes old; `carillon dashboard` prints a new link"
            )
        return await self._begin(request, await self._directory.user(link.email), email=link.email)

    async def _begin(
        self, request: Request[Any, Any, Any], caller: Caller, *, token_digest: str = "", email: str = ""
    ) -> str:
        secret, now, peer = secrets.token_urlsafe(32), self._clock.now(), request.client
        session = WebSession(
            id=secret_digest(secret),
            namespace=caller.namespace,
            token_digest=token_digest,
            email=email,
            began_at=now,
            seen_at=now,
            ends_at=now + LONGEST,
            address=peer.host if peer else "",
            agent=request.headers.get("user-agent", "")[:_AGENT_CHARACTERS],
        )
        await self._sessions.add(session)
        await self._end(request)
        return _cookie(request, secret, int(LONGEST.total_seconds()))

    async def sign_out(self, request: Request[Any, Any, Any]) -> str:
        await self._end(request)
        return _cookie(request, "", 0)

    async def _end(self, request: Request[Any, Any, Any]) -> None:
        shown = _read_cookie(request)
        known = await self._sessions.with_ids([secret_digest(shown)]) if shown else {}
        for session in known.values():
            await self._sessions.remove(session.id, session.namespace)


def is_refresh(request: Request[Any, Any, Any]) -> bool:
    return request.method == "GET" and REFRESH in request.headers


def _is_attended(request: Request[Any, Any, Any]) -> bool:
    """Whether a person makes this request: a script says so if the page was touched since its last refresh."""
    return not is_refresh(request) or _USED in request.headers


def _cookie(request: Request[Any, Any, Any], value: str, seconds: int) -> str:
    secure = _is_https(request)
    name, also = (_SECURE, "; Secure") if secure else (_PLAIN, "")
    return f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{also}"


def _read_cookie(request: Request[Any, Any, Any]) -> str:
    """The cookie's value; `""` without one, and if several have its name, because another site may have set one of
    them."""
    name = _SECURE if _is_https(request) else _PLAIN
    pairs = [pair.strip() for header in header_values(request.scope, b"cookie") for pair in header.split(";")]
    found = [value for pair in pairs for cookie, _, value in [pair.partition("=")] if cookie == name]
    return found[0] if len(found) == 1 and len(found[0]) <= _COOKIE_CHARACTERS else ""


def _is_https(request: Request[Any, Any, Any]) -> bool:
    """Whether the browser uses HTTPS, perhaps with a proxy in front: then `api.public_url` says so."""
    return request.url.scheme == "https" or bool(request.app.state[HTTPS])
