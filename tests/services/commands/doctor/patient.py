"""A house of Carillon that is well until a test harms it: queues, topics, an app, its push table, a bucket."""

import asyncio
import urllib.request
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pymongo
from pymongo.asynchronous.database import AsyncDatabase

from services.commands.doctor import examine
from services.commands.doctor.questions import INIT, Finding, Level
from services.wiring.process import init, set_up
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from services.wiring.workers import build_stages, queues_of
from shared.accounts.rules.apps import App
from shared.runtime.configuration import load
from tests.drivers.rabbitmq.administration import Administration
from tests.services.commands.doctor.shell import Shell
from tests.stack import Endpoints
from tests.waiting import until

APP = "doctor"
TABLE = f"{APP}_apns"
PATIENCE_SECONDS = 30.0
COLUMNS = "(seq_id bigint PRIMARY KEY, user_id text, token text, locale text, tz text)"


class Patient:
    """The house, and its doctor."""

    def __init__(self, stack: Endpoints, environment: dict[str, str], rooms: Rooms, folder: Path) -> None:
        self.stack = stack
        self.environment = environment
        self.rooms = rooms
        self.store = rooms.servers.store
        self.queues = list(queues_of(build_stages(rooms)))
        self.administration = Administration(stack.rabbit_management_url, environment["CARILLON_BROKER_URL"])
        self.shell = Shell(folder, stack)

    @property
    def database(self) -> AsyncDatabase[dict[str, Any]]:
        return self.store._database

    async def examine(self) -> Sequence[Finding]:
        return await examine(load(self.environment))

    async def ills(self) -> list[Finding]:
        """What the doctor finds that is not well."""
        return [finding for finding in await self.examine() if finding.level is not Level.OK]

    async def these_ills(self, *expected: tuple[Level, str, str]) -> list[Finding]:
        """Wait until there are just these: servers tell of a change with delay, and a busy one may be slow once."""
        ills: list[Finding] = []

        async def are_found() -> bool:
            ills[:] = await self.ills()
            return [(ill.level, ill.of, ill.check) for ill in ills] == [*expected]

        with suppress(TimeoutError):
            await until(are_found, "these ills", PATIENCE_SECONDS)
        assert [(ill.level, ill.of, ill.check) for ill in ills] == [*expected], ills
        return ills

    async def heal(self, *expected: tuple[Level, str, str], **fills: str) -> list[Finding]:
        """Find just these; type each remedy, with what the reader fills in; and be well afterwards."""
        ills = await self.these_ills(*expected)
        for line in dict.fromkeys(ill.remedy for ill in ills):
            await self.take(line, **fills)
        await self.these_ills()
        return ills

    async def take(self, line: str, **fills: str) -> None:
        """Type a remedy. `carillon init` alone is called, not started: programs are slow to start, and the chains of
        commands have it, too."""
        assert line
        if line == INIT:
            await init(load(self.environment))
            return
        for name, value in fills.items():
            blank = f"<{name.replace('_', ' ')}>"
            assert blank in line, line
            line = line.replace(blank, value)
        assert "<" not in line, line
        self.environment = self.shell.type(line, self.environment)

    async def sql(self, statement: str) -> None:
        connection = await asyncpg.connect(self.environment["CARILLON_AUDIENCE_URL"])
        await connection.execute(statement)
        await connection.close()


@asynccontextmanager
async def patient_on(
    stack: Endpoints, store: str, broker: str, push_database: str, folder: Path
) -> AsyncIterator[Patient]:
    """A patient who is well: set up, with an app."""
    environment = dict(stack.environment(store, broker, push_database))
    environment["CARILLON_BLOBS_URL"] = f"s3://carillon-{uuid.uuid4().hex[:12]}"
    # The broker is shared with other tests, which leave topics of every kind.
    environment["CARILLON_STREAM_TOPIC_TEMPLATE"] = f"doctor{uuid.uuid4().hex[:8]}-%s_%s"
    servers = Servers(load(environment), service="test")
    async with AsyncExitStack() as stack_of_closing:
        stack_of_closing.push_async_callback(servers.close)
        rooms = Rooms(servers)
        await set_up(rooms)
        patient = Patient(stack, environment, rooms, folder)
        await servers.store.apps.add(
            App(id=str(uuid.uuid4()), name=APP, bundle_id=APP, created_by="ana@example.com", created_at=1, updated_at=1)
        )
        await patient.sql(f"CREATE TABLE {TABLE} {COLUMNS}")
        await patient.sql(f"CREATE INDEX ON {TABLE} (user_id)")
        await patient.sql(f"INSERT INTO {TABLE} VALUES (1, 'u1', 't', 'en', '+0000')")
        bucket = environment["CARILLON_BLOBS_URL"].removeprefix("s3://")
        request = urllib.request.Request(f"{stack.s3_url}/{bucket}", method="PUT")
        (await asyncio.to_thread(urllib.request.urlopen, request)).close()
        yield patient


def index_names(database_url: str) -> dict[str, list[str]]:
    """The indexes of every collection, and how many documents it has, as the server tells."""
    client: pymongo.MongoClient[dict[str, Any]]
    with pymongo.MongoClient(database_url) as client:
        database: Any = client.get_default_database()
        return {
            name: [*sorted(database[name].index_information()), str(database[name].count_documents({}))]
            for name in sorted(database.list_collection_names())
        }
