"""The store's database: PyMongo's synchronous driver behind the interface of its asynchronous one.

So a call of the store runs to its end at once, with nothing else running, and the driver starts no tasks in a loop that
has no time. The server is real, and so is everything in `shared.store`; but its clock is the model's.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import datetime
from itertools import count
from typing import Any, Self, cast

from pymongo import MongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.synchronous.client_session import ClientSession

from shared.bus.store_topics import make_registry
from shared.drivers.mongo.documents import Document
from shared.store import Store
from tests.models.simulated.steps import finish

KEPT = (
    "jobs", "batches", "occurrences", "templates", "milestones", "messages", "tallies", "credentials", "suppressions",
    "send_leases", "single_contents", "groups", "feedback_positions",
    "bus_subscriptions", "bus_gone_queues", "bus_gone_topics", "bus_topics", "bus_topic_counts", "bus_positions",
    "bus_chunks", "bus_unwoken", "bus_cursors", "bus_deliveries", "bus_dead_letters",
    "bus_notices", "outbox", "bus_replays", "upkeep_turns",
)  # fmt: skip
"""The collections that a world writes."""

_READS = {"find_one", "count_documents", "estimated_document_count", "distinct", "aggregate"}


class Database:
    """One database for many worlds, one after the other. `now` tells its time, by this `clock`; `written` are the
    collections that were written to."""

    def __init__(self, url: str) -> None:
        self._client: MongoClient[Document] = MongoClient(url, tz_aware=True)
        self._database = self._client.get_default_database()
        self._running = self._client.start_session()
        self._sessions = count(1)
        self.now: Callable[[], datetime] = datetime.now
        self.clock = "one"
        self.written: set[str] = set()
        finish(self.store().setup())

    def store(self, **options: Any) -> Store:
        """The store as one process opens it."""
        return Store(cast("AsyncMongoClient[Document]", self), cast("AsyncDatabase[Document]", self), **options)

    def __getitem__(self, name: str) -> "_Collection":
        return _Collection(self, self._database[name])

    async def command(self, name: str) -> Document:
        """`hello`, which tells the time as the server does: naive, in UTC."""
        return {"localTime": self.now().replace(tzinfo=None), "me": self.clock}

    def start_session(self, *, snapshot: bool = False) -> "_Session":
        """A session of one process. It needs no server: a transaction is one step, so none is ever left open, and what
        one read finds is of one moment with `snapshot` or without."""
        return _Session(next(self._sessions), self._running)

    @property
    def client(self) -> Self:
        """Sessions are begun here."""
        return self

    @property
    def write_concern(self) -> Any:
        return self._database.write_concern

    @property
    def read_preference(self) -> Any:
        return self._database.read_preference

    @property
    def admin(self) -> "_Admin":
        return _Admin()

    async def create_collection(self, name: str) -> None:
        self._database.create_collection(name)

    def documents(self, name: str) -> list[Document]:
        """All that stands in a collection, by its ids."""
        return sorted(self._database[name].find(), key=lambda document: str(document["_id"]))

    def clear(self) -> None:
        """Forget what an earlier world left."""
        self._sessions, self.clock = count(1), "one"
        for name in KEPT:
            self._database[name].delete_many({})
        finish(make_registry(cast("AsyncDatabase[Document]", self)))

    async def close(self) -> None:
        """A process ends; the driver stays."""

    def end(self) -> None:
        self._client.close()


class _Collection:
    def __init__(self, database: Database, real: Any) -> None:
        self._real = real
        self.database = database

    @property
    def name(self) -> str:
        return str(self._real.name)

    @property
    def write_concern(self) -> Any:
        return self._real.write_concern

    @property
    def read_preference(self) -> Any:
        return self._real.read_preference

    def with_options(self, **options: Any) -> "_Collection":
        return _Collection(self.database, self._real.with_options(**options))

    def find(self, *args: Any, session: "_Session | None" = None, **named: Any) -> "_Cursor":
        if session is not None:
            named["session"] = session.real
        return _Cursor(self._real.find(*args, **named))

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._real, verb)

        async def call(*args: Any, session: "_Session | None" = None, **named: Any) -> Any:
            if session is not None:
                named["session"] = session.real
            if verb not in _READS:
                self.database.written.add(self.name)
            answer = method(*(self._dated(arg) for arg in args), **named)
            return _Cursor(answer) if verb == "aggregate" else answer

        return call

    def _dated(self, argument: Any) -> Any:
        """A change that asks for the server's time gets the model's."""
        if not isinstance(argument, dict) or "$currentDate" not in argument:
            return argument
        change = {key: value for key, value in argument.items() if key != "$currentDate"}
        dates = dict.fromkeys(argument["$currentDate"], self.database.now())
        return change | {"$set": change.get("$set", {}) | dates}


class _Session:
    """A session with an id of its own. A transaction is made in one go."""

    def __init__(self, number: int, real: ClientSession) -> None:
        self.real = real
        self.session_id = {"id": number.to_bytes(16)}
        self._server_session = None

    async def with_transaction(self, transact: Callable[[Any], Coroutine[Any, Any, Any]], **options: Any) -> Any:
        return self.real.with_transaction(lambda _: finish(transact(self)), **options)

    async def end_session(self) -> None:
        """Late steps of a dead process may still come in it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """As `end_session`."""


class _Admin:
    async def command(self, command: Document) -> None:
        """`killSessions`: no transaction is open."""


class _Cursor:
    def __init__(self, real: Any) -> None:
        self._real = real

    def sort(self, *args: Any) -> "_Cursor":
        return _Cursor(self._real.sort(*args))

    def limit(self, count: int) -> "_Cursor":
        return _Cursor(self._real.limit(count))

    async def to_list(self) -> list[Document]:
        return list(self._real)

    async def __aiter__(self) -> AsyncIterator[Document]:
        for document in self._real:
            yield document
