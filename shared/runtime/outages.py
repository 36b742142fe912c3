"""Waiting out an outage: loops use it while a server that they need is away."""

import asyncio
import random

import structlog

from shared.domain.errors import Unavailable
from shared.runtime.retries import Backoff, next_delay
from shared.runtime.waiting import pause

log = structlog.get_logger(__name__)


class Outage:
    """Logs each failure as `event` with `context`, and pauses longer after each: at least `least_seconds`, and until
    `interrupt` is set."""

    def __init__(
        self,
        event: str,
        interrupt: asyncio.Event,
        backoff: Backoff,
        *,
        least_seconds: float = 0.0,
        **context: object,
    ) -> None:
        self._event = event
        self._interrupt = interrupt
        self._backoff = backoff
        self._least_seconds = least_seconds
        self._context = context
        self.failures = 0

    async def wait(self, error: Unavailable) -> None:
        self.failures += 1
        log.warning(self._event, reason=str(error), attempt=self.failures, **self._context)
        seconds = next_delay(self._backoff, self.failures, random.random())
        await pause(self._interrupt, max(seconds, self._least_seconds))

    def end(self) -> None:
        """Note that the server answers: the next failure begins another outage."""
        self.failures = 0
