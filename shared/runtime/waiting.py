"""Waiting for an event with a time limit."""

import asyncio
from contextlib import suppress


async def pause(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for the event, at most `seconds` (`None`: for ever)."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
