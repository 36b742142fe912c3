"""The API with keys for secrets, a sandbox, and a provider beside it: a process that answers as it is told."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from services.wiring.api import build_api
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.drivers.secrets import fresh_key
from shared.messages.credentials import CredentialFlow
from shared.runtime.server_settings import ProviderSettings
from tests.providers.accounts import LOOPBACK, WHSEC
from tests.providers.fakes import FakeProcess, fake_process
from tests.services.api.client import Client, Reply
from tests.services.api.conftest import SETTINGS, House

SECRET = {"signingSecret": WHSEC, "authorization": "Bearer hush-hush-hush"}


@dataclass
class Desk:
    """An API that can keep secrets. `provider` is called by credentials of the kind `http`."""

    house: House
    rooms: Rooms
    admin: Client
    provider: FakeProcess
    sandbox: Path

    @property
    def flow(self) -> CredentialFlow:
        return self.rooms.messages.credentials

    def body(self, **fields: Any) -> dict[str, Any]:
        """A credential of the kind `http`."""
        http = {"url": f"{self.provider.url}/send", "headers": {"x-team": "push"}}
        standard = {
            "name": "main",
            "kind": "http",
            "fields": http,
            "secret": SECRET,
            "testRecipient": "ana@example.com",
        }
        return standard | fields

    def in_sandbox(self, **fields: Any) -> dict[str, Any]:
        """One that sends to nobody, and has no secret."""
        return {"name": "play", "kind": "sandbox", "testRecipient": "ana@example.com"} | fields

    async def made(self, app_id: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """A credential of the app, as the API shows it."""
        made: Reply = await self.admin.post(f"/apps/{app_id}/credentials", self.body() if body is None else body)
        assert made.status == 201, made.body
        shown: dict[str, Any] = made.json
        return shown

    async def arrived(self) -> int:
        """How many messages the provider has got."""
        return len((await self.provider.tell()).arrived)

    def noted(self) -> list[dict[str, Any]]:
        """What the sandbox has got."""
        return [json.loads(line) for line in self.sandbox.read_text().splitlines()] if self.sandbox.exists() else []


def capabilities_with(house: House, settings: ProviderSettings) -> Servers:
    """Those of the house, but for what goes by these settings."""
    opened = {"settings", "key_ring", "provider_kinds", "provider_outgoing"}
    given = {name: value for name, value in vars(house.servers).items() if name not in opened}
    chosen = {name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__} | {"providers": settings}
    return Servers(**given, settings=type(SETTINGS)(**chosen))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(house: House, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    sandbox = tmp_path_factory.mktemp("sandbox") / "messages.ndjson"
    settings = ProviderSettings(
        secret_keys=fresh_key(), call_seconds=5.0, allowed_networks=LOOPBACK, sandbox_file=str(sandbox)
    )
    servers = capabilities_with(house, settings)
    rooms = Rooms(servers)
    async with fake_process("http_fake") as provider:
        admin = Client(build_api(rooms), house.admin.headers)
        yield Desk(house, rooms, admin, provider, sandbox)
    await servers.provider_outgoing.close()


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def _kind_provider(desk: Desk) -> None:
    """The provider takes everything, and has got nothing."""
    await desk.provider.answer()
    await desk.provider.forget()
