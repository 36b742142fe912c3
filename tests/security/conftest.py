"""One API process for the tests of a session, and the tenants that share it."""

import os
import resource
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from services.wiring.servers import Servers
from shared.drivers.secrets import fresh_key
from shared.runtime.configuration import load
from tests import tiers
from tests.conftest import _execute, _manage, _with_path
from tests.queues import QUEUES
from tests.security import tolls
from tests.security.operations import Operation, operations
from tests.security.stores import Database
from tests.security.target import Target
from tests.security.tenants import ADMIN, ROOT_KEY, Town
from tests.stack import Endpoints
from tests.stack.server import run_apart

OPEN_FILES = 8_192


@pytest.fixture(scope="session")
def places(stack: Endpoints) -> Iterator[dict[str, str]]:
    """A database, a virtual host and a push database of this session's."""
    name = f"carillon_{secrets.token_hex(6)}"
    run_apart(_execute(stack.postgres_url, f'CREATE DATABASE "{name}"'))
    _manage(stack, "PUT", f"vhosts/{name}")
    _manage(stack, "PUT", f"permissions/{name}/guest", b'{"configure": ".*", "write": ".*", "read": ".*"}')
    yield {
        "store": _with_path(stack.mongo_url, name),
        "broker": _with_path(stack.rabbit_url, name),
        "push": _with_path(stack.postgres_url, name),
    }
    _manage(stack, "DELETE", f"vhosts/{name}")
    run_apart(_execute(stack.postgres_url, f'DROP DATABASE "{name}" WITH (FORCE)'))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def target(
    places: dict[str, str], stack: Endpoints, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Target]:
    """The process, which no scheduler and no worker stands beside: nothing changes but by its callers."""
    _open_files()
    folder = tmp_path_factory.mktemp("attacked")
    environment = {
        "CARILLON_STORE_URL": places["store"],
        "CARILLON_BROKER_URL": places["broker"],
        "CARILLON_BROKER_MANAGEMENT_URL": stack.rabbit_management_url,
        "CARILLON_AUDIENCE_URL": places["push"],
        "CARILLON_BLOBS_URL": (folder / "blobs").as_uri(),
        "CARILLON_PROVIDERS_SECRET_KEYS": fresh_key(),
        "CARILLON_PROVIDERS_SANDBOX_FILE": str(folder / "sandbox.ndjson"),
        "CARILLON_STREAM_URL": f"local://{folder / 'stream.db'}",
        "CARILLON_BUS_ROOT_KEY": ROOT_KEY,
        "CARILLON_API_PORT": "0",
        "CARILLON_API_FIRST_ADMIN": ADMIN["x-forwarded-email"],
        "CARILLON_HEALTH_PORT": "0",
        "CARILLON_SHUTDOWN_READINESS_SECONDS": "0",
        "CARILLON_LOGS_FORMAT": "json",
    }
    (folder / "blobs").mkdir()
    await _set_up(environment)
    target = Target({**os.environ, **environment}, folder)
    await target.whole()
    yield target
    await target.end()


@pytest.fixture(scope="session")
def database(places: dict[str, str]) -> Iterator[Database]:
    database = Database(places["store"])
    yield database
    database.drop()


@pytest_asyncio.fixture(loop_scope="session")
async def town(target: Target, database: Database, places: dict[str, str]) -> Town:
    """The tenants' world, before a process that is well."""
    await target.whole()
    return Town(target, database, places["push"])


@pytest_asyncio.fixture(loop_scope="session")
async def document(target: Target, town: Town) -> dict[str, Any]:
    """The OpenAPI document of the process itself."""
    return dict((await target.call("GET", "/openapi.json")).json)


@pytest.fixture
def api(document: dict[str, Any]) -> list[Operation]:
    """All operations, those that only look first and those that delete last."""
    return operations(document)


@pytest.fixture
def judged(request: pytest.FixtureRequest, target: Target, *, storm: bool) -> Iterator[None]:
    """The attacks of the test are judged by what they cost, but for the gate."""
    rest = tiers.chosen(request.config) is tiers.Tier.REST
    target.bounds = tolls.STRICT if storm else tolls.WIDE if rest else tolls.NONE
    yield
    target.bounds = tolls.NONE


def pytest_itemcollected(item: pytest.Item) -> None:
    """In the rest, each attack of the gate runs once more, alone, so that what it costs can be judged."""
    if "judged" in getattr(item, "fixturenames", ()) and tiers.chosen(item.config) is tiers.Tier.REST:
        item.add_marker("alone")


@pytest.fixture(autouse=True)
def _show_tolls(request: pytest.FixtureRequest) -> Iterator[None]:
    """Send what the attacks of a test cost with its report."""
    yield
    target: Target | None = request.getfixturevalue("target") if "target" in request.fixturenames else None
    if target is not None:
        tolls.note(request.node, target.tolls)
        target.tolls.clear()


async def _set_up(environment: dict[str, str]) -> None:
    servers = Servers(load(environment), service="test")
    await servers.store.setup()
    await servers.broker.setup(QUEUES)
    await servers.close()


def _open_files() -> None:
    """The attacks hold thousands of connections open: here, and so in the process, which takes our limits over."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES, hard), hard))
