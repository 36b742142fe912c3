"""Answers that are refused, delayed or missing: a server that answers by a script."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from carillon import AsyncCarillon, CarillonError, NotFound, Unavailable
from services.embedded.processes import free_port
from tests.client.both import Limits, connect
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("each_client")

Script = list[Callable[[], Awaitable[web.Response]] | web.Response]


class Scripted:
    """Answers by the script and keeps what it was asked; 503 when the script is over."""

    def __init__(self, *script: web.Response | Callable[[], Awaitable[web.Response]]) -> None:
        self.asked: list[web.BaseRequest] = []
        self.times: list[float] = []
        self._script: Script = list(script)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.asked.append(request)
        self.times.append(asyncio.get_running_loop().time())
        step = self._script.pop(0) if self._script else web.Response(status=503)
        return step if isinstance(step, web.Response) else await step()


@asynccontextmanager
async def scripted(
    scripted: Scripted, *, attempts: int = 5, timeout_seconds: float = 30
) -> AsyncIterator[AsyncCarillon]:
    async with TestServer(_app(scripted)) as server:
        url = str(server.make_url("/"))
        async with connect(url, token="t", attempts=attempts, timeout_seconds=timeout_seconds) as client:
            yield client


def _app(scripted: Scripted) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", scripted.answer)
    return app


def fired() -> web.Response:
    return web.json_response({"id": "i", "due": "2030-01-01T00:00:00Z"}, status=202)


async def test_all_attempts_of_a_call_have_its_key_and_two_calls_have_two() -> None:
    server = Scripted(web.Response(status=503), web.Response(status=502), fired(), fired())
    async with scripted(server) as client:
        await client.schedules.fire("k")
        await client.schedules.fire("k")
    keys = [request.headers["Idempotency-Key"] for request in server.asked]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert all(request.headers["Authorization"] == "Bearer t" for request in server.asked)


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_honoured(status: int) -> None:
    server = Scripted(web.Response(status=status, headers={"Retry-After": "1"}), fired())
    async with scripted(server) as client:
        await client.schedules.fire("k")
    assert server.times[1] - server.times[0] >= 1.0


async def test_who_asks_to_be_left_alone_for_long_gets_no_second_attempt() -> None:
    server = Scripted(web.Response(status=429, headers={"Retry-After": "3600"}))
    async with scripted(server) as client:
        with pytest.raises(Unavailable) as caught:
            await client.schedules.fire("k")
    assert (caught.value.status, caught.value.retry_after_seconds, len(server.asked)) == (429, 3600.0, 1)


async def test_giving_up_tells_the_last_cause() -> None:
    server = Scripted(
        web.Response(status=502), web.json_response({"reason": "the database is away"}, status=503)
    )  # fmt: skip
    async with scripted(server, attempts=2) as client:
        with pytest.raises(Unavailable, match="after 2 of 2 attempts: the database is away") as caught:
            await client.schedules.get("k")
    assert (caught.value.status, len(server.asked)) == (503, 2)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with connect(f"http://127.0.0.1:{free_port()}", attempts=2) as client:
        with pytest.raises(Unavailable) as caught:
            await client.schedules.delete("k")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.status is None


async def test_an_attempt_has_a_time_limit() -> None:
    async def answer_the_second() -> web.Response:
        if limits.begun == 1:
            await asyncio.sleep(30)
        return fired()

    async with scripted(Scripted(answer_the_second, answer_the_second), timeout_seconds=0.3) as client:
        limits = Limits(client, short=1)
        assert (await client.schedules.fire("k")).id == "i"
    assert limits.begun == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 500, 501, 302])
async def test_other_answers_are_final(status: int) -> None:
    server = Scripted(web.Response(status=status, headers={"Location": "/elsewhere"}), fired())
    async with scripted(server) as client:
        with pytest.raises(CarillonError) as caught:
            await client.schedules.fire("k")
    assert (caught.value.status, len(server.asked)) == (status, 1)
    assert not isinstance(caught.value, Unavailable)


async def test_a_404_counts_as_done_only_behind_an_attempt_that_may_have_arrived() -> None:
    async with scripted(Scripted(web.Response(status=503), web.Response(status=404))) as client:
        await client.schedules.delete("k")
    async with scripted(Scripted(web.Response(status=429), web.Response(status=404))) as client:
        with pytest.raises(NotFound):
            await client.schedules.delete("k")
    async with scripted(Scripted(web.Response(status=503), web.Response(status=404))) as client:
        with pytest.raises(NotFound):
            await client.schedules.get("k")


async def test_a_refused_connection_is_no_attempt_that_may_have_arrived() -> None:
    server = Scripted(web.Response(status=404))
    port = free_port()
    async with connect(f"http://127.0.0.1:{port}", attempts=50) as client:
        deleting = asyncio.create_task(client.schedules.delete("k"))
        await asyncio.sleep(0.1)
        async with TestServer(_app(server), port=port):
            with pytest.raises(NotFound):
                await deleting


async def test_an_answer_that_is_none_of_ours_is_told_as_such() -> None:
    async with scripted(Scripted(web.Response(text="<html>welcome</html>"))) as client:
        with pytest.raises(CarillonError, match="cannot be read"):
            await client.schedules.get("k")


async def test_closing_waits_for_what_is_in_flight() -> None:
    going_on = asyncio.Event()

    async def slow() -> web.Response:
        await going_on.wait()
        return fired()

    server = Scripted(slow)
    async with scripted(server) as client:
        firing = asyncio.create_task(client.schedules.fire("k"))
        await until(lambda: server.asked, "the call to arrive")
        closing = asyncio.create_task(client.close())
        await until(lambda: client._transport._closed, "the client to be closed")
        await asyncio.sleep(0.05)
        assert not closing.done()
        with pytest.raises(RuntimeError, match="closed"):
            await client.schedules.get("k")
        going_on.set()
        await closing
        assert (await firing).id == "i"


async def test_connections_are_bounded_and_waiting_for_one_is_no_time_out() -> None:
    """The time limit of an attempt begins after its wait for a connection."""
    running = most = 0
    going_on = asyncio.Event()

    async def counted() -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await going_on.wait()
        running -= 1
        return fired()

    server = Scripted(*[counted] * 12)
    async with (
        TestServer(_app(server)) as there,
        connect(str(there.make_url("/")), connections=3, attempts=1) as client,
    ):
        limits = Limits(client)
        firing = [asyncio.create_task(client.schedules.fire("k")) for _ in range(12)]
        await until(lambda: len(server.asked) == 3, "the first calls to arrive")
        await asyncio.sleep(0.05)
        assert limits.begun == 3
        going_on.set()
        await asyncio.gather(*firing)
    assert (most, limits.begun) == (3, 12)
