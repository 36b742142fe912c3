"""An import from a Marathon database of the test's own into a store of its own, seen through the API."""

import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from carillon_imports.carry import ImportOptions
from carillon_imports.marathon import bring
from carillon_imports.report import Fate, ImportTally
from services.wiring.process import build_service
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.runtime.configuration import load
from shared.runtime.serving import HttpServer
from shared.store import Store
from tests.contrib.import_marathon.source.source import SCHEMA, Source

PUSH_TABLE = """
CREATE TABLE game_apns (user_id text, token text, locale text, region text, tz text, seq_id bigint);
CREATE INDEX ON game_apns (seq_id)"""


ADMIN = "admin@example.com"


@dataclass
class Client:
    """A caller of the API."""

    url: str
    email: str = ADMIN

    def someone(self, email: str) -> "Client":
        return Client(self.url, email)

    async def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"x-forwarded-email": self.email}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, trust_env=False) as http:
            return await http.request(method, path, json=body)


@dataclass
class House:
    """`told` is what the last import told of single things, by id."""

    servers: Servers
    source: Source
    url: str
    api: Client
    told: dict[str, tuple[str, str]]

    @property
    def store(self) -> Store:
        return self.servers.store

    async def bring(self, *, scheduled: bool = False, dry_run: bool = False) -> ImportTally:
        record = io.StringIO()
        tally = await bring(
            self.url, self.servers, options=ImportOptions(dry_run=dry_run, record=record), scheduled=scheduled
        )
        lines = [json.loads(line) for line in record.getvalue().splitlines()]
        self.told = {line["id"]: (line["outcome"], line.get("reason", "")) for line in lines}
        return tally

    async def shown(self, path: str) -> Any:
        answer = await self.api.send("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def documents(self) -> list[Any]:
        """Everything in the store."""
        names = await self.store._database.list_collection_names()
        return [each for name in sorted(names) async for each in self.store._database[name].find().sort("_id", 1)]


def counts(tally: ImportTally, table: str = "") -> dict[str, int]:
    """What is not 0 by fate."""
    return {fate.value: tally.count(fate, table) for fate in Fate if tally.count(fate, table)}


@pytest.fixture
async def house(mongo_database: str, push_database: str, tmp_path: Path) -> AsyncIterator[House]:
    environment = {
        "CARILLON_STORE_URL": mongo_database,
        "CARILLON_AUDIENCE_URL": push_database,
        "CARILLON_BROKER_URL": "memory://",
        "CARILLON_API_PORT": "0",
        "CARILLON_API_FIRST_ADMIN": ADMIN,
        "CARILLON_STREAM_URL": f"local://{tmp_path}/stream",
    }
    connection = await asyncpg.connect(push_database)
    await connection.execute(SCHEMA + PUSH_TABLE)
    servers = Servers(load(environment), service="import")
    await servers.store.setup()
    [server] = [each for each in build_service("api", Rooms(servers)) if isinstance(each, HttpServer)]
    await server.start()
    yield House(servers, Source(connection), push_database, Client(f"http://127.0.0.1:{server.port}"), {})
    await server.stop()
    await servers.close()
    await connection.close()
