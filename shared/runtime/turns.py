"""Long computations in turns: a coroutine lets others run in between."""

import asyncio
import time

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
