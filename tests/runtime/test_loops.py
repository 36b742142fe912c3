"""A periodic loop runs at once, survives failures, and ends with the run in hand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from shared.runtime import metrics
from shared.runtime.loops import Periodic, Swept

HOUR = 3600.0


@asynccontextmanager
async def running(loop: Periodic) -> AsyncIterator[Periodic]:
    await loop.start()
    try:
        yield loop
    finally:
        await loop.stop()


def count(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"carillon_{name}", labels) or 0.0


def counting(runs: "asyncio.Queue[int]") -> Callable[[], Awaitable[Swept]]:
    async def run_once() -> Swept:
        runs.put_nowait(1)
        return Swept(claimed=3, retried=2, discarded=1)

    return run_once


async def test_runs_at_once_and_again_after_the_interval() -> None:
    runs: asyncio.Queue[int] = asyncio.Queue()
    async with running(Periodic("often", counting(runs), interval_seconds=0.001)):
        for _ in range(3):
            await asyncio.wait_for(runs.get(), 50)


async def test_failures_are_counted_and_survived() -> None:
    pauses: list[float] = []
    recovered = asyncio.Event()

    async def run_once() -> None:
        pauses.append(loop.pause_seconds())
        if len(pauses) <= 3:
            raise ConnectionError("down")
        if len(pauses) == 5:
            recovered.set()

    loop = Periodic("failing", run_once, interval_seconds=0.001, jitter=0.0)
    async with running(loop):
        await asyncio.wait_for(recovered.wait(), 50)
    assert pauses[:5] == pytest.approx([0.001, 0.001, 0.002, 0.004, 0.001])
    assert count("loop_runs_total", loop="failing", outcome="failed") == 3
    assert count("loop_runs_total", loop="failing", outcome="ok") >= 1


async def test_what_was_swept_is_counted() -> None:
    runs: asyncio.Queue[int] = asyncio.Queue()
    async with running(Periodic("swept", counting(runs), interval_seconds=HOUR)):
        await asyncio.wait_for(runs.get(), 50)
    whats = ("claimed", "retried", "discarded")
    assert [count("loop_swept_total", loop="swept", what=what) for what in whats] == [3, 2, 1]
    assert count("loop_seconds_count", loop="swept") == 1


async def test_stop_waits_for_the_run_in_hand_and_begins_no_other() -> None:
    began, release = asyncio.Event(), asyncio.Event()
    ended = 0

    async def run_once() -> None:
        nonlocal ended
        began.set()
        await release.wait()
        ended += 1

    loop = Periodic("draining", run_once, interval_seconds=0.001)
    await loop.start()
    await began.wait()
    stopping = asyncio.create_task(loop.stop())
    await asyncio.wait({stopping}, timeout=0.02)
    assert not stopping.done()
    release.set()
    await stopping
    assert ended == 1


async def test_cancelling_stop_gives_up_the_run_in_hand() -> None:
    began = asyncio.Event()

    async def run_once() -> None:
        began.set()
        await asyncio.Future()

    loop = Periodic("stuck", run_once, interval_seconds=HOUR)
    await loop.start()
    await began.wait()
    stopping = asyncio.create_task(loop.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(loop.wait(), 50)


def test_the_pause_is_jittered_and_grows_with_failures() -> None:
    async def run_once() -> None: ...

    rand = 0.5
    loop = Periodic("paced", run_once, interval_seconds=5.0, jitter=0.1, rand=lambda: rand)
    assert loop.pause_seconds() == pytest.approx(5.0)
    rand = 0.0
    assert loop.pause_seconds() == pytest.approx(4.5)
    rand = 0.5
    loop._failures = 3
    assert loop.pause_seconds() == pytest.approx(20.0)
    loop._failures = 1000
    assert loop.pause_seconds() == pytest.approx(60.0)
