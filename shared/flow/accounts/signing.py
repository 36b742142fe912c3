"""The secrets with which callbacks of a namespace are signed."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime

from cachetools import LRUCache
from msgspec import Struct

from shared.domain.accounts.signing_secrets import OVERLAP, NamespaceSecrets, derive_secret, rotate, signing_secrets
from shared.domain.errors import Conflict
from shared.store import Store

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
    """The secrets of namespaces. `deployment_key` is `callbacks.signing_secret`; without one nothing is signed."""

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
