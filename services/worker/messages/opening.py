"""Opening the provider, clock and pace that a sender needs for an account."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cachetools import LRUCache

from services.worker.messages.accounts import OpenAccounts
from services.worker.messages.dispatch import Dispatch
from services.worker.messages.entries import EntryWriter
from services.worker.messages.instants import Speed
from services.worker.messages.kept_clock import KeptClock
from services.worker.messages.pace import AccountPace
from services.worker.messages.rules import SendRules
from shared.domain.messages.credentials import Credential
from shared.store import Store

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
