"""Waiting for an event, but not for ever."""

import asyncio
from contextlib import suppress


async def pause(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for so many seconds (`None`: for ever), or until the event, whichever comes first."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
