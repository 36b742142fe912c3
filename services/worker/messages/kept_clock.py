"""The clock of accounts, looked at every second while a batch or single messages are sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from shared.domain.errors import Unavailable
from shared.flow.messages.account_clock import LOOK_SECONDS, AccountClock
from shared.runtime.metrics import ACCOUNT_CLOCK_ALLOWED, ACCOUNT_CLOCK_BOUND

log = structlog.get_logger(__name__)

_SECOND = 1_000_000


class KeptClock:
    """An `AccountClock` that costs nothing while it is unused. Nothing is granted while it may be wrong by more than
    `allowed_us`."""

    def __init__(self, clock: AccountClock, *, allowed_us: int) -> None:
        self._clock = clock
        self._allowed_us = allowed_us
        self._users = 0
        self._looking: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def keep(self) -> AsyncIterator[AccountClock]:
        """The clock, after a fresh look."""
        async with self._lock:
            if self._looking is None:
                await self._clock.look()
                self._tell()
                self._looking = asyncio.create_task(self._keep_looking())
            self._users += 1
        try:
            yield self._clock
        finally:
            self._users -= 1
            if not self._users and self._looking is not None:
                self._looking.cancel()
                self._looking = None
                ACCOUNT_CLOCK_BOUND.set(0)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._clock.look()
            except Unavailable as error:
                # The longer this lasts the less is known of the time, until nothing is granted any more.
                log.warning("the database does not tell its time", reason=str(error))
            except Exception:
                # Without a clock this worker would never send again, unnoticed.
                log.exception("the database's time cannot be read")
            self._tell()

    def _tell(self) -> None:
        ACCOUNT_CLOCK_ALLOWED.set(self._allowed_us / _SECOND)
        ACCOUNT_CLOCK_BOUND.set(self._clock.read().bound_us / _SECOND)
