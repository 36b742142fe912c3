"""The bodies of all requests share one room; a route that passes its body on needs none of it."""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, cast

import httpx
import pytest
from litestar import Litestar, Request, Response

from services.api.http import errors
from services.api.http.guards import SMALL_BYTES, Bodies
from services.api.http.rights import EVERYBODY
from services.api.http.routes import Resource, Route

LIMIT = 1_000_000


class BodiesResource(Resource):
    @Route("POST", "/hold", summary="Read the body whole.", who=EVERYBODY, act="", answers={HTTPStatus.OK: str})
    async def hold(self, request: Request[Any, Any, Any]) -> Response[str]:
        return Response(str(len(await request.body())))

    @Route(
        "POST", "/stream", summary="Read the body in pieces.",
        who=EVERYBODY, act="", answers={HTTPStatus.OK: str}, streams=True,
    )  # fmt: skip
    async def stream(self, request: Request[Any, Any, Any]) -> Response[str]:
        return Response(str(sum([len(part) async for part in request.stream()])))


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    routes = BodiesResource().handlers()
    app = Litestar(routes, exception_handlers={Exception: errors.refuse}, openapi_config=None, logging_config=None)
    app.asgi_handler = Bodies(app.asgi_handler, LIMIT)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(cast(Any, app)), base_url="http://here") as client:
        yield client


async def pieces(count: int, sent: asyncio.Event, go_on: asyncio.Event) -> AsyncIterator[bytes]:
    """A body of so many pieces of 100 kB that stops before the last."""
    for _ in range(count - 1):
        yield b"x" * 100_000
    sent.set()
    await go_on.wait()
    yield b"x" * 100_000


async def test_who_brings_more_than_there_is_room_for_is_told_to_come_again(client: httpx.AsyncClient) -> None:
    sent, go_on = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(client.post("/hold", content=pieces(9, sent, go_on)))
    await sent.wait()
    refused = await client.post("/hold", content=b"x" * 300_000)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    assert (await client.post("/hold", content=b"x" * SMALL_BYTES)).text == str(SMALL_BYTES)
    go_on.set()
    assert (await first).text == "900000"
    assert (await client.post("/hold", content=b"x" * 300_000)).text == "300000"


async def begun(sent: asyncio.Event, go_on: asyncio.Event) -> AsyncIterator[bytes]:
    """A body of 600 kB that stops behind its first piece."""
    yield b"x" * 100_000
    sent.set()
    await go_on.wait()
    yield b"x" * 500_000


async def test_a_body_has_the_room_of_its_declared_length_from_its_beginning(client: httpx.AsyncClient) -> None:
    sent, go_on = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(client.post("/hold", content=begun(sent, go_on), headers={"content-length": "600000"}))
    await sent.wait()
    assert (await client.post("/hold", content=b"x" * 600_000)).status_code == 503
    go_on.set()
    assert (await first).text == "600000"
    assert (await client.post("/hold", content=b"x" * 600_000)).text == "600000"


async def test_what_is_passed_on_takes_no_room(client: httpx.AsyncClient) -> None:
    sent, go_on = asyncio.Event(), asyncio.Event()
    streaming = asyncio.create_task(client.post("/stream", content=pieces(50, sent, go_on)))
    await sent.wait()
    assert (await client.post("/hold", content=b"x" * 900_000)).text == "900000"
    go_on.set()
    assert (await streaming).text == "5000000"
