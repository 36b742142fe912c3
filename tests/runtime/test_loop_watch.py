"""What `/metrics` tells of an event loop that stands still, or does not."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from shared.runtime.loop_watch import BUSY_SECONDS, IDLE_SECONDS, LoopWatch
from shared.runtime.metrics import LOOP_LONGEST_STRETCH, REGISTRY


@pytest.fixture
async def watch() -> AsyncIterator[LoopWatch]:
    LOOP_LONGEST_STRETCH.set(0)
    watch = LoopWatch()
    await watch.start()
    await asyncio.sleep(IDLE_SECONDS)
    yield watch
    await watch.stop()


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"carillon_event_loop_{name}", labels) or 0.0


def spend(seconds: float) -> None:
    """So much CPU time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def looked_at() -> None:
    """Wait until two more looks are noted: the one under way may have begun before."""
    looks = sample("stretch_cpu_seconds_count")
    async with asyncio.timeout(10):
        while sample("stretch_cpu_seconds_count") < looks + 2:
            await asyncio.sleep(0.01)


async def test_a_stretch_of_work_is_seen_whole_and_by_its_cpu_time(watch: LoopWatch) -> None:
    spend(0.4)
    await looked_at()
    assert 0.4 <= sample("longest_stretch_cpu_seconds") < 0.4 + 1.5 * IDLE_SECONDS


async def test_short_turns_add_up_to_no_long_stretch(watch: LoopWatch) -> None:
    within = sample("stretch_cpu_seconds_bucket", le="0.25")
    total = sample("stretch_cpu_seconds_count")
    end = time.thread_time() + 1.0
    while time.thread_time() < end:
        spend(0.002)
        await asyncio.sleep(0)
    await looked_at()
    assert sample("longest_stretch_cpu_seconds") < 0.25
    assert sample("stretch_cpu_seconds_bucket", le="0.25") - within == sample("stretch_cpu_seconds_count") - total


async def test_a_loop_that_waits_for_others_lags_and_spends_nothing(watch: LoopWatch) -> None:
    lag, spent = sample("lag_seconds_sum"), time.thread_time()
    time.sleep(0.4)
    await looked_at()
    assert sample("lag_seconds_sum") - lag >= 0.4 - IDLE_SECONDS
    # Python may collect the garbage of a large process meanwhile, which is work.
    assert sample("longest_stretch_cpu_seconds") < 0.1 + time.thread_time() - spent


async def test_an_idle_loop_is_seldom_woken(watch: LoopWatch) -> None:
    looks = sample("stretch_cpu_seconds_count")
    await asyncio.sleep(1.0)
    assert sample("stretch_cpu_seconds_count") - looks <= 1.0 / IDLE_SECONDS + 1
    assert BUSY_SECONDS < IDLE_SECONDS
