"""Periodic work: `run_once` and a thin runner around it.

The work is a plain async function that a test can call. The runner adds the interval, the back-off after a failure, the
log line, the metrics, and a stop that lets the present run end.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import structlog
from msgspec import Struct

from shared.runtime import metrics
from shared.runtime.lifecycle import Background
from shared.runtime.retries import Backoff, next_delay
from shared.runtime.waiting import pause

log = structlog.get_logger(__name__)

_STEPS = 100


class Swept(Struct, frozen=True):
    """The counts of one run: things that were taken on, put off for another try, and given up."""

    claimed: int = 0
    retried: int = 0
    discarded: int = 0


class Periodic(Background):
    """Runs `run_once` at once and then every `interval_seconds`, give or take the share `jitter`, so that processes do
    not run in step.

    A failed run is logged and counted, and the next one waits longer, up to the larger of a minute and the interval.
    The loop ends only by `stop`; `wait` returns before that only if the runner itself broke.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[Swept | None]],
        *,
        interval_seconds: float,
        jitter: float = 0.1,
        rand: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(name, self._loop)
        self._run_once = run_once
        self._interval = interval_seconds
        self._jitter = jitter
        self._rand = rand
        self._backoff = Backoff(first_seconds=interval_seconds, cap_seconds=max(60.0, interval_seconds), jitter=0.0)
        self._failures = 0

    def pause_seconds(self) -> float:
        """The seconds until the next run: the interval, or more after failures, give or take the jitter."""
        base = next_delay(self._backoff, self._failures, 0.0) if self._failures else self._interval
        return base * (1 + self._jitter * (2 * self._rand() - 1))

    async def _loop(self, stopping: asyncio.Event) -> None:
        metrics.LOOP_RUNS.labels(self.name, "failed")  # so that Prometheus sees the first failure
        while not stopping.is_set():
            await self._sweep()
            await pause(stopping, self.pause_seconds())

    async def _sweep(self) -> None:
        began = time.perf_counter()
        try:
            swept = await self._run_once()
        except Exception:
            self._failures += 1
            metrics.LOOP_RUNS.labels(self.name, "failed").inc()
            log.exception("loop run failed", loop=self.name, failures=self._failures)
        else:
            self._failures = 0
            metrics.LOOP_RUNS.labels(self.name, "ok").inc()
            self._count(swept or Swept())
        finally:
            metrics.LOOP_SECONDS.labels(self.name).observe(time.perf_counter() - began)

    def _count(self, swept: Swept) -> None:
        for what in Swept.__struct_fields__:
            metrics.LOOP_SWEPT.labels(self.name, what).inc(getattr(swept, what))


async def repeat(step: Callable[[], Awaitable[int]], *, while_full: int, most: int = _STEPS) -> int:
    """Repeat `step` while it does at least `while_full` things, at most `most` times; the rest is left for the next
    round. Returns the sum."""
    total = 0
    for _ in range(most):
        done = await step()
        total += done
        if done < while_full:
            break
    return total
