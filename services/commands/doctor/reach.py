"""Connecting to an address, to see whether anybody is there, and how long an answer takes."""

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

_CLOSE_SECONDS = 0.2


async def connect(host: str, port: int) -> str:
    """Why nobody can be connected to there; empty where somebody can."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except socket.gaierror as error:
        return f"the name cannot be resolved ({error.strerror})"
    except OSError as error:
        return os.strerror(error.errno).lower() if error.errno else str(error)
    writer.close()
    with suppress(OSError, TimeoutError):
        await asyncio.wait_for(writer.wait_closed(), _CLOSE_SECONDS)
    return ""


async def measure(ask: Callable[[], Awaitable[object]]) -> float:
    """The seconds that it takes."""
    began = time.perf_counter()
    await ask()
    return time.perf_counter() - began
