"""Waiting out an outage: each failure is told, the pauses grow, and whoever is to stop does not wait."""

import asyncio
import time

from structlog.testing import capture_logs

from shared.core.errors import Unavailable
from shared.runtime.loops import Backoff, Outage

AWAY = Unavailable("nobody answers")


async def test_each_failure_is_logged_with_its_number_and_context() -> None:
    outage = Outage("it waits", asyncio.Event(), Backoff(first_seconds=0, cap_seconds=0), queue="q")
    with capture_logs() as logs:
        await outage.wait(AWAY)
        await outage.wait(AWAY)
        outage.end()
        await outage.wait(AWAY)
    said = {"event": "it waits", "log_level": "warning", "reason": "nobody answers", "queue": "q"}
    assert logs == [said | {"attempt": attempt} for attempt in (1, 2, 1)]


async def test_the_pauses_grow() -> None:
    outage = Outage("it waits", asyncio.Event(), Backoff(first_seconds=0.05, cap_seconds=10, jitter=0))
    lasted = []
    for _ in range(3):
        began = time.monotonic()
        await outage.wait(AWAY)
        lasted.append(time.monotonic() - began)
    assert lasted[0] >= 0.05
    assert lasted[1] >= 0.1
    assert lasted[2] >= 0.2


async def test_no_pause_is_shorter_than_the_least() -> None:
    outage = Outage("it waits", asyncio.Event(), Backoff(first_seconds=0, cap_seconds=0), least_seconds=0.1)
    began = time.monotonic()
    await outage.wait(AWAY)
    assert time.monotonic() - began >= 0.1


async def test_whoever_is_to_stop_does_not_wait() -> None:
    stopping = asyncio.Event()
    outage = Outage("it waits", stopping, Backoff(first_seconds=1_000, cap_seconds=1_000))
    stopping.set()
    async with asyncio.timeout(50):
        await outage.wait(AWAY)
