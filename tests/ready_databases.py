"""MongoDB databases that are made ready once, for one test after another: only the collections that a test has written
to are made anew.
"""

import secrets
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pymongo
import pytest
from pymongo import monitoring
from pymongo.database import Database
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from shared.store import Store
from tests.stack import Endpoints
from tests.stack.server import run_apart

_RESTING = 3
"""A database rests while so many others are used: what its last test still had under way has come by then, and goes
when it is made ready again."""
_READS = {"find", "aggregate", "count", "distinct", "listIndexes"}

Document = dict[str, Any]


class Written(CommandListener):
    """Which collections of each database this process has written to."""

    def __init__(self) -> None:
        self.by_database: dict[str, set[str]] = defaultdict(set)

    @contextmanager
    def by_clients_made_meanwhile(self) -> Iterator[None]:
        """Other tests' clients are left alone: one that tells of its commands draws from the chance of simulations."""
        registered: list[CommandListener] = monitoring._LISTENERS.command_listeners
        registered.append(self)
        yield
        registered.remove(self)

    def started(self, event: CommandStartedEvent) -> None:
        collection = event.command.get(event.command_name)
        if isinstance(collection, str) and event.command_name not in _READS:
            self.by_database[event.database_name].add(collection)

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


class ReadyDatabases:
    """Those of one server, for one session of tests."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: pymongo.MongoClient[Document] = pymongo.MongoClient(url, timeoutMS=10_000)
        self._written = Written()
        self._resting: deque[str] = deque()
        self._indexes: dict[str, list[Document]] = {}
        self._documents: dict[str, list[Document]] = {}

    @contextmanager
    def lend(self) -> Iterator[str]:
        """The URL of a database as `carillon init` leaves one."""
        name = self._restored() or self._made()
        self._written.by_database[name].clear()
        with self._written.by_clients_made_meanwhile():
            yield _url(self._url, name)
        self._resting.append(name)

    def close(self) -> None:
        for name in self._resting:
            self._client.drop_database(name)
        self._client.close()

    def _made(self) -> str:
        name = f"carillon_{secrets.token_hex(6)}"
        run_apart(_set_up(_url(self._url, name)))
        if not self._indexes:
            database = self._client[name]
            names = database.list_collection_names()
            self._indexes = {name: [dict(each) for each in database[name].list_indexes()] for name in names}
            self._documents = {name: list(database[name].find()) for name in names}
        return name

    def _restored(self) -> str:
        """One that is ready again; or nothing."""
        if len(self._resting) < _RESTING:
            return ""
        name = self._resting.popleft()
        try:
            for collection in self._written.by_database.pop(name):
                self._make_anew(self._client[name], collection)
        except pymongo.errors.PyMongoError:  # as if a transaction was left open
            with suppress(pymongo.errors.PyMongoError):
                self._client.admin.command("killAllSessions", [])
            return ""
        return name

    def _make_anew(self, database: Database[Document], collection: str) -> None:
        database.drop_collection(collection)
        if indexes := self._indexes.get(collection):
            database.command("createIndexes", collection, indexes=indexes)
        if documents := self._documents.get(collection):
            database[collection].insert_many(documents)


@pytest.fixture(scope="session")
def ready_databases(stack: Endpoints) -> Iterator[ReadyDatabases]:
    databases = ReadyDatabases(stack.mongo_url)
    yield databases
    databases.close()


@pytest.fixture
def ready_database(ready_databases: ReadyDatabases) -> Iterator[str]:
    """The URL of a database where every collection is, and empty. Only this process may write there."""
    with ready_databases.lend() as url:
        yield url


@pytest.fixture
async def store(ready_database: str) -> AsyncIterator[Store]:
    """A store in a database of the test's own."""
    opened = Store.open(ready_database)
    yield opened
    await opened.close()


def _url(server: str, name: str) -> str:
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


async def _set_up(url: str) -> None:
    store = Store.open(url)
    await store.setup()
    await store.close()
