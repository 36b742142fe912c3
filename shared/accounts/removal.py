"""Apps and their callers: deleting an app with its data, links that sign in a browser once, and signing secrets.

    idle? ──> takes nothing new ──> idle? ──> noted ──> secrets, templates ──> the rest, in steps ──> idle? ──> the app

Each subject brings the data that it has stored for an app (`Belongings`). A noted removal is finished: a
request does as much as fits, upkeep does the rest. Until then the app exists, and its name and ids are taken. A
link is stored like a session that has no browser yet.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import structlog
from cachetools import LRUCache
from msgspec import Struct

from shared.accounts.rules.apps import App
from shared.accounts.rules.callers import WebSession, secret_digest, user_namespace
from shared.accounts.rules.secrets import OVERLAP, NamespaceSecrets, derive_secret, rotate, signing_secrets
from shared.core.errors import Conflict
from shared.runtime.faults import fault
from shared.runtime.loops import Swept
from shared.store import Store

log = structlog.get_logger(__name__)


class Belongings:
    """The data that one subject has stored for apps. A subject overrides the steps that it needs. Each step is safe to
    repeat."""

    async def check_idle(self, app_id: str) -> None:
        """Raise `Conflict` if the app has unfinished work."""

    async def withdraw(self, app_id: str) -> None:
        """Remove data that would make new work for an app that accepts none."""

    async def remove_at_once(self, app_id: str) -> None:
        """Remove data that must not wait: data that may send for the app, and that its work begins with."""

    async def remove_some(self, app_id: str) -> bool:
        return False


REQUEST_SECONDS = 5.0
ROUND_SECONDS = 20.0


class AppRemoval:
    def __init__(self, store: Store, belongings: Sequence[Belongings]) -> None:
        self._store = store
        self._belongings = belongings

    async def remove(self, app: App, *, seconds: float = REQUEST_SECONDS) -> bool:
        """Delete the app for at most `seconds`; returns whether it is gone. It accepts no new work from now on; another
        call continues. Raises `Conflict` if it has unfinished work."""
        await self._check_idle(app.id)
        await self._store.apps.begin_removal(app.id)
        for owned in self._belongings:
            await owned.withdraw(app.id)
        # Work that was begun before is visible now; work begun later finds the app being deleted.
        await self._check_idle(app.id)
        await self._store.apps.confirm_removal(app.id)
        return await self._go_on(app.id, time.monotonic() + seconds)

    async def run_once(self) -> Swept:
        gone, deadline = 0, time.monotonic() + ROUND_SECONDS
        for app_id in await self._store.apps.find_confirmed():
            try:
                gone += await self._go_on(app_id, deadline)
            except Conflict as refused:
                log.warning("an app that is being deleted has work again", app_id=app_id, reason=refused.reason)
        return Swept(discarded=gone)

    async def _go_on(self, app_id: str, deadline: float) -> bool:
        await self._check_idle(app_id)
        for owned in self._belongings:
            await owned.remove_at_once(app_id)
        await fault("removal.after_secrets")
        for owned in self._belongings:
            while await owned.remove_some(app_id):
                await fault("removal.after_step")
                if time.monotonic() > deadline:
                    return False
        # Work whose maker died before its own check is not forgotten either. Without templates it never begins later.
        await self._check_idle(app_id)
        await fault("removal.before_end")
        await self._store.apps.remove(app_id)
        return True

    async def _check_idle(self, app_id: str) -> None:
        for owned in self._belongings:
            await owned.check_idle(app_id)


LASTS = timedelta(minutes=10)


async def make_sign_in_link(store: Store, email: str, now: datetime) -> str:
    """Make a link for this person; returns its secret. It works once, within ten minutes."""
    secret = secrets.token_urlsafe(32)
    link = WebSession(
        id=secret_digest(secret),
        namespace=user_namespace(email),
        email=email,
        is_link=True,
        began_at=now,
        seen_at=now,
        ends_at=now + LASTS,
    )
    await store.sessions.add(link)
    return secret


REMEMBERED_SECONDS = 10.0
_REMEMBERED = 10_000
_SALT_BYTES = 32


class IssuedSecret(Struct, frozen=True):
    """A new secret, and the time from which only it signs."""

    namespace: str
    version: int
    secret: str
    alone_from: datetime


class _Remembered(Struct, frozen=True):
    secrets: NamespaceSecrets | None
    until: float


class Signing:
    def __init__(self, store: Store, now: Callable[[], Awaitable[datetime]], *, deployment_key: str) -> None:
        self._store = store
        self._now = now
        self._key = deployment_key
        self._remembered: LRUCache[str, _Remembered] = LRUCache(_REMEMBERED)

    async def issue(self, namespace: str) -> IssuedSecret:
        """Make a new secret for the namespace; older secrets sign beside it for a day. Raises `Conflict` if the
        deployment has no key, or too many of the namespace's secrets sign."""
        if not self._key:
            reason = "there is no deployment key to derive secrets from: callbacks.signing_secret must be set first"
            raise Conflict(reason, field="callbacks.signing_secret")
        while True:
            old, now = await self._store.signing_secrets.get(namespace), await self._now()
            new = rotate(old, namespace, secrets.token_hex(_SALT_BYTES), now)
            if await self._store.signing_secrets.replace(old, new):
                secret = derive_secret(self._key, namespace, new.newest)
                return IssuedSecret(namespace, new.newest.number, secret, now + OVERLAP)

    async def get_secrets(self, namespace: str, at: datetime) -> tuple[str, ...]:
        """The secrets that sign callbacks of this namespace, newest first, up to `REMEMBERED_SECONDS` old."""
        if not self._key:
            return ()
        return signing_secrets(await self._recall(namespace), self._key, at)

    async def _recall(self, namespace: str) -> NamespaceSecrets | None:
        now = asyncio.get_running_loop().time()
        known = self._remembered.get(namespace)
        if known is None or known.until < now:
            known = _Remembered(await self._store.signing_secrets.get(namespace), now + REMEMBERED_SECONDS)
            self._remembered[namespace] = known
        return known.secrets
