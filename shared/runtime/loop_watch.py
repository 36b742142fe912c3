"""How long the event loop keeps the tasks of this process waiting, for `/metrics`.

A component looks at the loop again and again. The lag is how late a look comes: every other task waited as long. The
CPU time of the loop's thread since the last look is a bound: each look is a turn, so no task held the loop for longer
between two turns. The bound is too high by the work of other tasks in the interval, so looks are close together while
the loop is busy, and rare while it is idle.
"""

import asyncio
import time

from shared.runtime.lifecycle import Background
from shared.runtime.metrics import LOOP_LAG, LOOP_LONGEST_STRETCH, LOOP_STRETCH

IDLE_SECONDS = 0.1
BUSY_SECONDS = 0.05
_BUSY_SHARE = 0.1


class LoopWatch(Background):
    """The component that looks at the loop."""

    def __init__(self) -> None:
        super().__init__("loop watch", self._watch)
        self._longest = 0.0

    async def _watch(self, stopping: asyncio.Event) -> None:
        interval, spent = IDLE_SECONDS, time.thread_time()
        while not stopping.is_set():
            began = time.monotonic()
            await asyncio.sleep(interval)
            stretch = time.thread_time() - spent
            spent += stretch
            self._note(max(0.0, time.monotonic() - began - interval), stretch)
            interval = BUSY_SECONDS if stretch > _BUSY_SHARE * interval else IDLE_SECONDS

    def _note(self, lag: float, stretch: float) -> None:
        LOOP_LAG.observe(lag)
        LOOP_STRETCH.observe(stretch)
        if stretch > self._longest:
            self._longest = stretch
            LOOP_LONGEST_STRETCH.set(stretch)
