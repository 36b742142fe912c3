"""An import from a small Routemaster into a store of the test's own, seen through the API that its clients know."""

import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from carillon_imports.carry import ImportOptions
from carillon_imports.report import Fate, ImportTally
from carillon_imports.routemaster import bring
from services.wiring.process import build_service, set_up
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.runtime.configuration import load
from shared.runtime.serving import HttpServer
from shared.store import Store
from tests.contrib.import_routemaster.routemaster import ROOT, Routemaster, running

NEW_ROOT = "root-key-of-the-new-bus"


@dataclass
class NewBus:
    """`told` is what the last import told of single things, by their tables and names."""

    servers: Servers
    old: Routemaster
    url: str
    told: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.servers.store

    async def bring(self, *, dry_run: bool = False) -> ImportTally:
        record = io.StringIO()
        options = ImportOptions(dry_run=dry_run, record=record)
        tally = await bring(self.old.url, ROOT, self.servers, options=options)
        lines = [json.loads(line) for line in record.getvalue().splitlines()]
        self.told = {(line["table"], line["name"]): (line["outcome"], line.get("reason", "")) for line in lines}
        return tally

    async def ask(self, method: str, path: str, body: Any = None, *, token: str = NEW_ROOT) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, auth=httpx.BasicAuth(token, "x"), trust_env=False) as http:
            return await http.request(method, path, json=body)

    async def topics(self) -> dict[str, str | None]:
        """The topics with their publishers, as root sees them."""
        return {each["name"]: each["publisher"] for each in (await self.ask("GET", "/topics")).json()}

    async def subscribers(self) -> dict[str, dict[str, Any]]:
        """The subscriptions by their clients, as root sees them."""
        shown = (await self.ask("GET", "/subscribers")).json()
        return {each.pop("subscriber"): each for each in shown}

    async def documents(self) -> list[Any]:
        """Everything in the store."""
        names = await self.store._database.list_collection_names()
        return [each for name in sorted(names) async for each in self.store._database[name].find().sort("_id", 1)]


def counts(tally: ImportTally) -> dict[str, int]:
    """What is not 0 by fate."""
    return {fate.value: tally.count(fate) for fate in Fate if tally.count(fate)}


@pytest.fixture
async def bus(mongo_database: str, tmp_path: Path) -> AsyncIterator[NewBus]:
    environment = {
        "CARILLON_STORE_URL": mongo_database,
        "CARILLON_BROKER_URL": "memory://",
        "CARILLON_API_PORT": "0",
        "CARILLON_STREAM_URL": f"local://{tmp_path}/stream",
        "CARILLON_BUS_ROOT_KEY": NEW_ROOT,
    }
    servers = Servers(load(environment), service="import")
    await set_up(Rooms(servers))
    [server] = [each for each in build_service("api", Rooms(servers)) if isinstance(each, HttpServer)]
    await server.start()
    async with running() as old:
        yield NewBus(servers, old, f"http://127.0.0.1:{server.port}")
    await server.stop()
    await servers.close()
