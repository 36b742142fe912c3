"""The open provider accounts of this worker; and what a sender needs for an account: its provider, clock and pace."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cachetools import LRUCache
from msgspec import Struct

from services.worker.messages.dispatch import Dispatch
from services.worker.messages.entries import EntryWriter
from services.worker.messages.pace import AccountPace, KeptClock, Speed
from shared.core.errors import Conflict, Invalid, Unavailable
from shared.messages.rules.credentials import Credential
from shared.messages.rules.pacing import PaceGuard
from shared.providers import Provider
from shared.store import Store


class SendRules(Struct, frozen=True, kw_only=True):
    guard: PaceGuard
    call_seconds: float

    @property
    def call_us(self) -> int:
        return int(self.call_seconds * 1_000_000)


_KEPT = 100
_Key = tuple[str, int]


class OpenAccounts:
    """Opens accounts by `open_account`, which raises `Conflict` or `Invalid` if that is impossible."""

    def __init__(self, open_account: Callable[[Credential], Provider]) -> None:
        self._open_account = open_account
        self._providers: dict[_Key, Provider] = {}
        self._users: dict[_Key, int] = {}

    @asynccontextmanager
    async def use(self, credential: Credential) -> AsyncIterator[Provider]:
        """Use the account. Raises `Unavailable` if this deployment cannot open it."""
        key = credential.id, credential.version
        self._users[key] = self._users.get(key, 0) + 1
        try:
            yield self._find(key, credential)
        finally:
            self._users[key] -= 1
            await self._close_unused()

    async def close(self) -> None:
        for key in list(self._providers):
            await self._providers.pop(key).close()

    def _find(self, key: _Key, credential: Credential) -> Provider:
        provider = self._providers.pop(key, None)
        if provider is None:
            try:
                provider = self._open_account(credential)
            except (Conflict, Invalid) as error:
                raise Unavailable(f"the credential {credential.name} cannot be opened: {error.reason}") from error
        self._providers[key] = provider  # the last one used is the last to be closed
        return provider

    async def _close_unused(self) -> None:
        """Close unused accounts that have changed since they were opened, and beyond `_KEPT` those unused for
        longest."""
        newest: dict[str, int] = {}
        for credential_id, version in self._providers:
            newest[credential_id] = max(version, newest.get(credential_id, 0))
        idle = [key for key in self._providers if not self._users.get(key)]
        outdated = [key for key in idle if key[1] < newest[key[0]]]
        surplus = [key for key in idle if key not in outdated][: max(len(self._providers) - len(outdated) - _KEPT, 0)]
        # A caller that comes while one is being closed opens another.
        closing = [self._providers.pop(key) for key in [*outdated, *surplus]]
        for key in [key for key, users in self._users.items() if not users and key not in self._providers]:
            del self._users[key]
        await asyncio.gather(*(provider.close() for provider in closing))


_REMEMBERED = 1_000


class Dispatches:
    """Opens dispatches with the accounts and the clock that all senders of this worker share."""

    def __init__(self, store: Store, accounts: OpenAccounts, kept_clock: KeptClock, rules: SendRules) -> None:
        self._store = store
        self._accounts = accounts
        self._kept_clock = kept_clock
        self._rules = rules
        self._speeds: LRUCache[str, Speed] = LRUCache(_REMEMBERED)

    @asynccontextmanager
    async def open(
        self,
        credential: Credential,
        writer: EntryWriter,
        *,
        holder: str,
        turn: int = 0,
        first_in_line: bool = False,
        let_next_in: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[Dispatch]:
        """Open a dispatch for the holder of a place, in this turn of its batch."""
        guard, call_us = self._rules.guard, self._rules.call_us
        async with self._kept_clock.keep() as clock, self._accounts.use(credential) as provider:
            pace = AccountPace(
                self._store.credentials,
                clock,
                guard,
                credential_id=credential.id,
                holder=holder,
                turn=turn,
                call_us=call_us,
                first_in_line=first_in_line,
            )
            # Single messages do not wait for instants that this process holds for jobs.
            speed = Speed() if first_in_line else self._speeds.setdefault(credential.id, Speed())
            yield Dispatch(pace, writer, provider, clock, guard, call_us=call_us, speed=speed, let_next_in=let_next_in)

    async def close(self) -> None:
        """Close the accounts once no sender uses them."""
        await self._accounts.close()
