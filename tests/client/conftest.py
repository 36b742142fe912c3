"""A real API over HTTP: the application on the real database, behind the real server, and a client of it."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from carillon import AsyncCarillon
from shared.runtime.serving import HttpServer
from tests.client.both import KINDS, Chosen, Kind, connect
from tests.client.cutting import CuttingProxy
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House, house

__all__ = ["house"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(house: House) -> AsyncIterator[int]:
    server = HttpServer("api", house.admin.app, host="127.0.0.1", port=0, proxy_headers=False)
    await server.start()
    yield server.port
    await server.stop()


@pytest.fixture(params=[KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.slow)], ids=["async", "sync"])
def each_client(request: pytest.FixtureRequest) -> Iterator[Kind]:
    """The test runs with each of the two clients. The gate runs it with the asynchronous client alone: the tests of the
    command line use the other one."""
    Chosen.kind = request.param
    yield request.param
    Chosen.kind = AsyncCarillon


@pytest_asyncio.fixture(loop_scope="module")
async def client(each_client: Kind, port: int) -> AsyncIterator[AsyncCarillon]:
    async with connect(f"http://127.0.0.1:{port}", user=ADMIN) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def proxy(port: int) -> AsyncIterator[CuttingProxy]:
    proxy = CuttingProxy(port)
    async with proxy.running():
        yield proxy


@pytest_asyncio.fixture(loop_scope="module")
async def cut_off(each_client: Kind, proxy: CuttingProxy) -> AsyncIterator[AsyncCarillon]:
    """A client that asks through the proxy."""
    async with connect(f"http://127.0.0.1:{proxy.port}", user=ADMIN) as client:
        yield client
