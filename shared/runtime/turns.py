"""Long work in turns: a coroutine that computes for long lets others run meanwhile."""

import asyncio
import time

TURN_SECONDS = 0.005


class Turns:
    """Measures how long its owner has held the event loop, and gives the loop back when that is enough.

    By time, not by the number of things done: one of them may take a thousand times as long as another.
    """

    def __init__(self) -> None:
        self._ends_at = time.monotonic() + TURN_SECONDS

    async def give(self) -> None:
        """Let others run if the turn is over. Called after each thing done; without effect it costs next to nothing."""
        if time.monotonic() >= self._ends_at:
            await asyncio.sleep(0)
            self._ends_at = time.monotonic() + TURN_SECONDS
