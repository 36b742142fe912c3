"""Waiting for what must become true: one helper for every test."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

SECONDS = 50.0
"""The usual limit, under the time-out of a test so that a wait in vain is named and not only interrupted."""


async def until(condition: Callable[[], Any], what: str = "the condition", seconds: float = SECONDS) -> Any:
    """Look again and again, and return the first true outcome. The condition may be a function or a coroutine function.

    Raises `TimeoutError` after `seconds`, even if the condition itself hangs.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        outcome = condition()
        if inspect.isawaitable(outcome):
            outcome = await _before(deadline, outcome, what)
        if outcome:
            return outcome
        if loop.time() >= deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        await asyncio.sleep(0.02)


async def _before(deadline: float, look: Awaitable[Any], what: str) -> Any:
    # `asyncio.timeout` would cancel the look once, and `wait_for` of Python 3.11, in the drivers, may swallow that.
    looking = asyncio.ensure_future(look)
    try:
        await asyncio.wait({looking}, timeout=deadline - asyncio.get_running_loop().time())
        if not looking.done():
            raise TimeoutError(f"waited for {what}, and the last look at it did not return")
        return looking.result()
    finally:
        looking.cancel()
