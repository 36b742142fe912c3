"""Calls of `AsyncCarillon` that are cancelled."""

import asyncio

import pytest
from aiohttp import web

from tests.client.test_attempts import Scripted, fired, scripted
from tests.waiting import until


async def test_a_call_that_is_cancelled_does_no_harm_to_the_next() -> None:
    async def never() -> web.Response:
        await asyncio.sleep(30)
        return fired()

    server = Scripted(fired(), never, fired())
    async with scripted(server) as client:
        await client.schedules.fire("k")
        firing = asyncio.create_task(client.schedules.fire("k"))
        await until(lambda: len(server.asked) == 2, "the call to arrive")
        firing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await firing
        await client.schedules.fire("k")


async def test_closing_that_is_cancelled_ends_what_is_in_flight() -> None:
    async def never() -> web.Response:
        await asyncio.sleep(30)
        return fired()

    server = Scripted(never)
    async with scripted(server) as client:
        firing = asyncio.create_task(client.schedules.fire("k"))
        await until(lambda: server.asked, "the call to arrive")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.close()
        with pytest.raises(RuntimeError, match="closed"):
            await firing
