"""What `/metrics` tells of an event loop that stands still, or does not."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from shared.runtime.lifecycle import BUSY_SECONDS, IDLE_SECONDS, LoopWatch
from shared.runtime.metrics import LOOP_LONGEST_STRETCH, REGISTRY
from tests.waiting import until


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
    await until(lambda: sample("stretch_cpu_seconds_count") >= looks + 2, "two more looks")


async def test_a_stretch_of_work_is_seen_whole(watch: LoopWatch) -> None:
    spend(0.4)
    await looked_at()
    assert sample("longest_stretch_cpu_seconds") >= 0.4


@pytest.mark.alone
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


async def test_a_loop_that_waits_for_others_lags(watch: LoopWatch) -> None:
    lag = sample("lag_seconds_sum")
    time.sleep(0.4)
    await looked_at()
    assert sample("lag_seconds_sum") - lag >= 0.4 - IDLE_SECONDS


@pytest.mark.alone
async def test_a_loop_that_waits_for_others_spends_nothing(watch: LoopWatch) -> None:
    spent = time.thread_time()
    time.sleep(4)
    await looked_at()
    # Python may collect the garbage of a large process meanwhile, which is work.
    assert sample("longest_stretch_cpu_seconds") < 1 + time.thread_time() - spent


async def test_an_idle_loop_is_seldom_woken(watch: LoopWatch) -> None:
    looks, began = sample("stretch_cpu_seconds_count"), time.monotonic()
    await asyncio.sleep(1.0)
    lasted = time.monotonic() - began
    # A look takes longer than this, but for one behind a moment of work, which the garbage collector may have had.
    assert sample("stretch_cpu_seconds_count") - looks <= lasted / IDLE_SECONDS + 4
    assert BUSY_SECONDS < IDLE_SECONDS
