"""The product in this process, on a database of its own, by a steady clock: what a recording is made of."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog

from services.wiring.api import build_api
from services.wiring.process import build_service
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from services.wiring.workers import build_stages
from services.worker.consumer import Stage
from shared.clock.rules.callbacks import DeliveryError, QueueMessage, TopicMessage
from shared.console import overview
from shared.core import tasks
from shared.drivers.blobs.files import FolderBlobs
from shared.drivers.http.client import HttpOutgoing
from shared.drivers.http.guard import OwnApi
from shared.drivers.postgres import Audience
from shared.providers.mail import Mail
from shared.runtime.configuration import load
from shared.store import Store
from tests.queues import QUEUES
from tests.recorded.steady import SteadyClock, SteadyTime, keep_steady
from tests.security import bodies, tenants
from tests.security.operations import Operation, operations
from tests.security.stores import Database
from tests.security.tenants import ADMIN, ROOT_KEY, Tenant, Town
from tests.services.api import memories
from tests.services.api.client import Client, Reply
from tests.services.api.conftest import DeliveringBroker, DeliveringStream, _execute, _push_database
from tests.stack import Endpoints

memories.keep()

SECRET_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
ENVIRONMENT = {
    "CARILLON_API_FIRST_ADMIN": ADMIN["x-forwarded-email"],
    "CARILLON_API_PUBLIC_URL": "https://carillon.example.com",
    "CARILLON_API_TRUSTED_PROXIES": "127.0.0.0/8",
    "CARILLON_BUS_ALLOW_HTTP": "true",
    "CARILLON_BUS_ROOT_KEY": ROOT_KEY,
    "CARILLON_CALLBACKS_ALLOWED_NETWORKS": "127.0.0.0/8",
    "CARILLON_CALLBACKS_EXCHANGES": "orders",
    "CARILLON_CALLBACKS_TOPICS": "orders",
    "CARILLON_CALLBACKS_SIGNING_SECRET": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    "CARILLON_PROVIDERS_ALLOWED_NETWORKS": "127.0.0.0/8",
    "CARILLON_PROVIDERS_SECRET_KEYS": SECRET_KEY,
    "CARILLON_PROVIDERS_SANDBOX_FILE": os.devnull,
    "CARILLON_STREAM_URL": "local://unused",
    "CARILLON_BLOBS_URL": "file:///unused",
    "CARILLON_BROKER_URL": "memory://",
}


class TellingBroker(DeliveringBroker):
    """Takes callbacks in, and tells of them."""

    def __init__(self) -> None:
        super().__init__()
        self.delivered: list[QueueMessage] = []

    async def deliver(self, messages: Sequence[QueueMessage]) -> list[DeliveryError | None]:
        self.delivered += messages
        return [None] * len(messages)


class TellingStream(DeliveringStream):
    """The same for topics."""

    def __init__(self, path: Path, *, lanes: int = 4) -> None:
        super().__init__(path, lanes=lanes)
        self.delivered: list[TopicMessage] = []

    async def deliver(self, messages: Sequence[TopicMessage]) -> list[DeliveryError | None]:
        self.delivered += messages
        return [None] * len(messages)


class Counted:
    """In the place of `secrets` for what the tests themselves make up."""

    def __init__(self) -> None:
        self._count = 0

    def token_hex(self, count: int) -> str:
        self._count += 1
        return f"{self._count:0{2 * count}d}"


@dataclass
class World:
    """`names` are the words that stand for what differs from run to run."""

    clock: SteadyClock
    store: Store
    database: Database
    rooms: Rooms
    app: Any
    town: Town
    folder: Path
    document: dict[str, Any] = field(default_factory=dict)
    api: list[Operation] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    logged: list[dict[str, Any]] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=lambda: ENVIRONMENT)
    stages: dict[str, Stage[Any]] = field(default_factory=dict)

    async def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """As `Target.call`: one request through the application."""
        self.clock.step()
        local = "x-forwarded-email" in (headers or {})
        client = Client(self.app, dict(headers or {}), "127.0.0.1" if local else "203.0.113.9")
        return await client.send(method, path, body)

    async def tenant(self, name: str = "") -> Tenant:
        """One with one of everything. Its ids are called by their names from now on."""
        tenant = await self.town.tenant()
        self.learn(tenant, name)
        return tenant

    def learn(self, tenant: Tenant, name: str = "") -> None:
        secret = tenant.headers["authorization"].removeprefix("Bearer ")
        self.names[secret] = f"<token{name}>"
        for key, value in tenant.ids.items():
            if len(value) > 15 and re.search("[0-9a-f]{12}|^[A-Za-z0-9_-]{30}", value):
                self.names.setdefault(value, f"<{key}{name}>")

    async def work(self, *prefixes: str) -> None:
        """Do all tasks that wait in these queues, one after the other, as a worker would."""
        broker = self.rooms.servers.broker
        stages = {queue: stage for queue, stage in self.stages.items() if queue.startswith(prefixes)}
        while any([await broker.depth(queue) for queue in stages]):
            for queue, stage in stages.items():
                ready = broker.queue(queue).ready  # type: ignore[attr-defined]
                while ready:
                    await stage.run(tasks.decode(ready.popleft().body, stage.task))

    @asynccontextmanager
    async def running(self, process: str, *names: str) -> AsyncIterator[None]:
        """These components of a process at work."""
        built = build_service(process, self.rooms)
        found = [each for each in built if each.name in names]
        assert len(found) == len(names), [each.name for each in built]
        for component in found:
            await component.start()
        yield
        for component in found:
            await component.stop()

    def operation(self, method: str, path: str) -> Operation | None:
        """The operation that serves this path."""
        found = [each for each in self.api if each.method == method and _pattern(each.path).fullmatch(path)]
        return min(found, key=lambda each: each.path.count("{"), default=None)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{path\\}", ".+", re.sub(r"\\{(?!path)\w+\\}", "[^/]+", re.escape(path))))


@asynccontextmanager
async def open_world(stack: Endpoints, store_url: str, folder: Path, *, zones: bool = True) -> AsyncIterator[World]:
    """A world; it ends with its context. `zones`: pushes go by time zones, which makes many jobs."""
    clock = SteadyClock()
    time = SteadyTime(clock)
    settings = load(ENVIRONMENT)
    store = Store.open(store_url)
    name = store._database.name
    audience = Audience.open(await _push_database(stack.postgres_url, name), pool_size=2, statement_timeout_seconds=10)
    broker = TellingBroker()
    await broker.setup(QUEUES)
    (folder / "blobs").mkdir()
    blobs = FolderBlobs.open((folder / "blobs").as_uri())
    stream = TellingStream.open(f"local://{folder}/stream.db")
    outgoing = HttpOutgoing.open(
        allowed_networks=("127.0.0.0/8",), timeout_seconds=5, connections=9, own=_own(settings)
    )
    given = Servers(
        settings, service="test", store=store, broker=broker, stream=stream, audience=audience, blobs=blobs,
        uploads=blobs, mail=Mail(), outgoing=outgoing, provider_outgoing=outgoing, bus_outgoing=outgoing,
        slow_bus_outgoing=outgoing, own_api=_own(settings), time=time, clock=clock,
    )  # fmt: skip
    database = Database(store_url)
    await stream.setup(Rooms(given).bus.stream_topics)
    try:
        with keep_steady(clock), _own_words(zones), _patient_menu(), _kept_logs() as logged:
            rooms = Rooms(given)
            app = build_api(rooms)
            push = f"{stack.postgres_url.rpartition('/')[0]}/{name}"
            world = World(clock, store, database, rooms, app, None, folder)  # type: ignore[arg-type]
            world.stages = {stage.task.queue: stage for stage in build_stages(rooms)}
            world.logged = logged
            world.town = Town(world, database, push)  # type: ignore[arg-type]
            world.document = (await world.call("GET", "/openapi.json", None, ADMIN)).json
            world.api = operations(world.document)
            yield world
            for stage in world.stages.values():
                await stage.close()
            await rooms.bus.waker.close()
    finally:
        await outgoing.close()
        await stream.close()
        await audience.close()
        await store.close()
        await asyncio.to_thread(database._client.close)
        await _execute(stack.postgres_url, f'DROP DATABASE "{name}" WITH (FORCE)')


def _own(settings: Any) -> Any:
    return OwnApi(settings.api.host, 1, public_url=settings.api.public_url)


@contextmanager
def _kept_logs() -> Iterator[list[dict[str, Any]]]:
    """Every line of the log, as well as where it goes otherwise."""
    logged: list[dict[str, Any]] = []

    def keep(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
        logged.append(dict(event))
        return event

    processors = structlog.get_config()["processors"]
    processors.insert(0, keep)
    try:
        yield logged
    finally:
        processors.remove(keep)


@contextmanager
def _patient_menu() -> Iterator[None]:
    """Have the counts of the menu wait for a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview, "_GLANCE_SECONDS", 60.0)
        yield


@contextmanager
def _own_words(zones: bool) -> Iterator[None]:
    """Have the tests' own words counted, and not drawn by chance."""
    with pytest.MonkeyPatch.context() as patch:
        counted = Counted()
        patch.setattr(bodies, "secrets", counted)
        patch.setattr(tenants, "secrets", counted)
        if not zones:
            patch.setattr(bodies, "localized", bodies.job)
        yield
