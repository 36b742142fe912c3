"""Waiting for what a server does in its own time, as an acknowledgement that nobody confirms."""

import asyncio
from collections.abc import Awaitable, Callable


async def eventually(look: Callable[[], Awaitable[bool]], *, seconds: float = 60.0) -> None:
    """Return as soon as `look` is true; fail if it never is."""
    async with asyncio.timeout(seconds):
        while not await look():
            await asyncio.sleep(0.02)
