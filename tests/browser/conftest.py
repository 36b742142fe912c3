"""The API on a port, with something of everything in it, and one Chromium for all tests of a module."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from shared.runtime.serving import HttpServer
from tests.browser.screen import Screen, chromium, read_axe, screen
from tests.services.api.conftest import House, house

__all__ = ["house"]


@dataclass
class Instance:
    """The API at an address, which can be taken away."""

    house: House
    port: int
    token: str
    server: HttpServer | None = None

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, at the port of the time before, if there was one."""
        self.server = HttpServer("api", self.house.admin.app, host="127.0.0.1", port=self.port, proxy_headers=False)
        await self.server.start()
        self.port = self.server.port

    async def stop(self) -> None:
        """Listen no longer."""
        if self.server is not None:
            await self.server.stop()
            self.server = None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def instance(house: House) -> AsyncIterator[Instance]:
    made = await house.admin.post("/tokens", {"name": "ana's browser", "isAdmin": True})
    await _fill(house)
    instance = Instance(house, 0, made.json["token"])
    await instance.start()
    yield instance
    await instance.stop()


async def _fill(house: House) -> None:
    """Something of everything that is quickly made."""
    app_id = await house.app_with_template()
    made = [
        await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"}),
        await house.admin.post(
            f"/apps/{app_id}/credentials", {"name": "play", "kind": "sandbox", "testRecipient": "ana@example.com"}
        ),
        await house.admin.post("/users", {"email": "bea@example.com", "roles": {f"app/{app_id}": "operator"}}),
    ]
    assert [reply.status for reply in made] == [201, 201, 201]


@pytest.fixture(scope="session")
def axe() -> str:
    return read_axe()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(browser: Browser, instance: Instance) -> AsyncIterator[Screen]:
    """The window of an admin who is signed in."""
    async with screen(browser, instance.base) as shown:
        await shown.sign_in(instance.token)
        yield shown
