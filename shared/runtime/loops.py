"""Periodic work and waiting: loops, retries with a back-off, outages that are waited out, and turns of the event loop.

The work of a loop is a plain async function, `run_once`, and a thin runner repeats it.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
from msgspec import Struct

from shared.core.errors import Unavailable
from shared.runtime import metrics
from shared.runtime.lifecycle import Background

log = structlog.get_logger(__name__)


class Backoff(Struct, frozen=True, kw_only=True):
    """Delays that grow by `factor` from `first_seconds` to `cap_seconds`; `jitter` is the share of each that is
    random."""

    first_seconds: float = 0.5
    factor: float = 2.0
    cap_seconds: float = 60.0
    jitter: float = 0.5


def next_delay(policy: Backoff, attempt: int, rand: float, retry_after_seconds: float | None = None) -> float:
    """Seconds to wait after failure number `attempt` (from 1), never above the cap.

    `rand` from [0, 1) takes up to `jitter` of the delay away. `retry_after_seconds` (as in HTTP's Retry-After) is a
    lower bound, and the cap limits it too.
    """
    # The exponent is limited so that a long outage does not overflow a float.
    grown = policy.first_seconds * policy.factor ** min(max(attempt, 1) - 1, 64)
    delay = min(grown, policy.cap_seconds) * (1 - policy.jitter * rand)
    return min(max(delay, retry_after_seconds or 0.0), policy.cap_seconds)


async def pause(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for the event, at most `seconds` (`None`: for ever)."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


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


TURN_SECONDS = 0.005


class Turns:
    """Measures how long its owner has held the event loop, and gives the loop back after `TURN_SECONDS`.

    It goes by time, not by the number of things done: one of them may take a thousand times as long as another.
    """

    def __init__(self) -> None:
        self._ends_at = time.monotonic() + TURN_SECONDS

    async def give(self) -> None:
        """Let others run if the turn is over. Call it after each thing; before the end of the turn it costs almost
        nothing."""
        if time.monotonic() >= self._ends_at:
            await asyncio.sleep(0)
            self._ends_at = time.monotonic() + TURN_SECONDS


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
            for what in Swept.__struct_fields__:
                metrics.LOOP_SWEPT.labels(self.name, what).inc(getattr(swept or Swept(), what))
        finally:
            metrics.LOOP_SECONDS.labels(self.name).observe(time.perf_counter() - began)


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
