"""One look at servers serves all who ask within a second: anybody may ask whether they are well."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from shared.domain.errors import Unavailable

PATIENCE_SECONDS = 4.0
"""Clients of Routemaster, and many a load balancer, wait for five seconds."""
FRESH_SECONDS = 1.0


class SharedLook:
    """Looks whether these checks pass. One that raises `Unavailable`, or takes over four seconds, does not."""

    def __init__(
        self,
        checks: Sequence[Callable[[], Awaitable[None]]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checks = checks
        self._monotonic = monotonic
        self._looking = asyncio.Lock()
        self._healthy = False
        self._looked_at = float("-inf")

    async def is_well(self) -> bool:
        """Whether all passed, at most a second ago."""
        async with self._looking:
            if self._monotonic() - self._looked_at >= FRESH_SECONDS:
                self._healthy = await self._look()
                self._looked_at = self._monotonic()
            return self._healthy

    async def _look(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(*(check() for check in self._checks))
        except (Unavailable, TimeoutError):
            return False
        return True
