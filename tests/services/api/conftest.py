"""The API over the real store and the real push database: one house for a module, an app for each test."""

import itertools
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from services.api.app import Application
from services.api.http.errors import fresh_id
from services.wiring.api import build_api
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.accounts.rules.apps import App, name_key
from shared.clock.schedules import ScheduleFlow
from shared.drivers.blobs.files import FolderBlobs
from shared.drivers.http.client import HttpOutgoing
from shared.drivers.http.guard import OwnApi
from shared.drivers.kafka.local import LocalStream
from shared.drivers.postgres import Audience
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.drivers.secrets import fresh_key
from shared.jobs.moves import JobFlow
from shared.providers.mail import Mail
from shared.runtime.bus_settings import BusSettings
from shared.runtime.server_settings import BlobSettings, ProviderSettings, Section
from shared.runtime.settings import ApiSettings, CallbackSettings, Settings
from shared.store import Store
from shared.time import DatabaseTime
from tests.clocks import ManualClock
from tests.queues import QUEUES
from tests.ready_databases import ReadyDatabases
from tests.services.api import memories
from tests.services.api.client import ADMIN, Client
from tests.stack import Endpoints

ROOT_KEY = "root-of-the-bus-of-tests"
SETTINGS = Settings(
    api=ApiSettings(first_admin=ADMIN, trusted_proxies=("127.0.0.0/8", "::1/128")),
    blobs=BlobSettings(max_file_bytes=100),
    bus=BusSettings(root_key=ROOT_KEY),
    callbacks=CallbackSettings(exchanges=("orders",), topics=("orders",)),
    providers=ProviderSettings(secret_keys=fresh_key(), sandbox_file=os.devnull),
)

_serials = itertools.count()

memories.keep()


class DeliveringBroker(MemoryBroker):
    """Takes callbacks in, as RabbitMQ does."""

    delivers = True


class DeliveringStream(LocalStream):
    """Takes callbacks in, as Kafka does."""

    delivers = True


@dataclass
class House:
    servers: Servers
    store: Store
    audience: Audience
    blobs: FolderBlobs
    broker: MemoryBroker
    flow: JobFlow
    schedules: ScheduleFlow
    clock: ManualClock
    admin: Client

    def build(self, *sections: Section, **servers: Any) -> Application:
        """Another API over the same servers, with these sections of the settings and these servers in the place of
        its own."""
        fields = {type(getattr(SETTINGS, name)): name for name in SETTINGS.__struct_fields__}
        settings = replace(SETTINGS, **{fields[type(section)]: section for section in sections})
        return build_api(Rooms(Servers(**(vars(self.servers) | {"settings": settings} | servers))))

    async def app(self, name: str = "game") -> str:
        """The id of a new app; the push tables of `game` exist.

        Many may have one name, and so the same tables: only the first has the key by which names are unique.
        """
        now = self.clock.now_ns()
        app = App(
            id=fresh_id(now),
            name=name,
            bundle_id=f"com.example.g{next(_serials)}",
            created_by=ADMIN,
            created_at=now,
            updated_at=now,
        )
        document = msgspec.to_builtins(app)
        key = app.id if await self.store.apps.find_holders([name]) else name_key(name)
        await self.store.apps._apps.insert_one({"_id": document.pop("id"), "name_key": key} | document)
        return app.id

    async def service(self, *app_ids: str, name: str = "service") -> Client:
        """A caller with a token of its own, for these apps."""
        made = await self.admin.post("/tokens", {"name": name, "allowedApps": app_ids})
        assert made.status == 201, made.body
        return self.admin.service(made.json["token"])

    async def file(self, name: str, content: bytes) -> str:
        """Put a file where jobs find it; its path, for `csvPath`."""

        async def parts() -> AsyncIterator[bytes]:
            yield content

        path = f"{self.blobs.bucket}/{name}"
        await self.blobs.write(path, parts())
        return path

    async def app_with_template(self) -> str:
        app_id = await self.app()
        template = {"name": "like", "locale": "en", "body": {"alert": "{{user}} likes it"}, "defaults": {"user": "Ana"}}
        made = await self.admin.post(f"/apps/{app_id}/templates", template)
        assert made.status == 201, made.body
        return app_id


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(
    stack: Endpoints, ready_databases: ReadyDatabases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    with ready_databases.lend() as store_url:
        async for house in _house(stack, store_url, tmp_path_factory):
            yield house


async def _house(stack: Endpoints, store_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    store = Store.open(store_url)
    name = store._database.name
    push_url = await _push_database(stack.postgres_url, name)
    audience = Audience.open(push_url, pool_size=2, statement_timeout_seconds=10)
    broker = DeliveringBroker()
    await broker.setup(QUEUES)
    clock = ManualClock()
    blobs = FolderBlobs.open(tmp_path_factory.mktemp("blobs").as_uri())
    stream = DeliveringStream.open(f"local://{tmp_path_factory.mktemp('stream')}/stream.db")
    own_api = OwnApi("127.0.0.1", 0)
    outgoing = HttpOutgoing.open(allowed_networks=(), timeout_seconds=1, connections=1, own=own_api)
    servers = Servers(
        SETTINGS,
        service="test",
        store=store,
        broker=broker,
        stream=stream,
        audience=audience,
        blobs=blobs,
        uploads=blobs,
        mail=Mail(),
        outgoing=outgoing,
        own_api=own_api,
        time=DatabaseTime(store),
        clock=clock,
    )
    rooms = Rooms(servers)
    admin = Client(build_api(rooms), {"x-forwarded-email": ADMIN})
    flow, schedules = rooms.jobs.flow, rooms.clock.schedules
    yield House(servers, store, audience, blobs, broker, flow, schedules, clock, admin)
    await outgoing.close()
    await stream.close()
    await audience.close()
    await store.close()
    await _execute(stack.postgres_url, f'DROP DATABASE "{name}" WITH (FORCE)')


async def _push_database(url: str, name: str) -> str:
    await _execute(url, f'CREATE DATABASE "{name}"')
    target = f"{url.rpartition('/')[0]}/{name}"
    for service in ("apns", "gcm"):
        table = f"game_{service}"
        await _execute(
            target,
            f"CREATE TABLE {table} (user_id text, token text, locale text, region text, tz text, seq_id bigint)",
            f"CREATE INDEX ON {table} (seq_id)",
            f"INSERT INTO {table} SELECT 'u' || n, 't' || n, 'en', 'US', '+0000', n FROM generate_series(1, 10) n",
        )
    return target


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
