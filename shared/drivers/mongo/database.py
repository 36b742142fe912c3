"""The database itself: its TLS, its stamp, its indexes, and the questions of `carillon doctor` to it.

The stamp says which versions of Carillon may work on the database. The doctor's questions change nothing that is
stored.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Self, cast

from bson.son import SON
from msgspec import Struct
from pymongo import AsyncMongoClient, IndexModel
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.uri_parser import SCHEME, parse_uri

from shared.core.documents import OLDEST, VERSION, Stamp
from shared.core.errors import Invalid
from shared.drivers.mongo.documents import Aggregate, Document, translate_errors
from shared.drivers.mongo.transactions import end_session
from shared.runtime.server_settings import TlsSettings
from shared.runtime.tls import client_context

_OWN_FILES = ("tlscafile", "tlscertificatekeyfile", "tlscrlfile", "ssl_ca_certs", "ssl_certfile")
_LOOSE = ("tlsinsecure", "tlsallowinvalidcertificates", "tlsallowinvalidhostnames")


def trust_files(client: AsyncMongoClient[Any], url: str, tls: TlsSettings) -> None:
    """Give the client a context that reads its files again when they change. The driver accepts none, so this sets a
    private attribute. Raises `Invalid`."""
    if url.startswith("mongodb+srv://") and (tls.ca_file or tls.certificate_file):
        # The driver makes the options of such a client anew after it knows the hosts.
        rule = "name the files of TLS in the URL (tlsCAFile, tlsCertificateKeyFile) where it is mongodb+srv://"
        raise Invalid(rule, field="store.url")
    options = client.options.pool_options
    in_url = url.lower()
    if options._ssl_context is None or any(f"{name}=" in in_url for name in (*_OWN_FILES, *_LOOSE)):  # noqa: SLF001
        return
    options._PoolOptions__ssl_context = client_context(tls)  # type: ignore[attr-defined]  # noqa: SLF001


_ID = "schema"


class Schema(Aggregate):
    """The `meta` collection, with one document: `{_id: "schema", version, oldest}`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._meta = database["meta"]

    async def setup(self) -> None:
        await self._meta.update_one({"_id": _ID}, {"$max": {"version": VERSION, "oldest": OLDEST}}, upsert=True)

    async def read(self) -> Stamp | None:
        found = await self._meta.find_one({"_id": _ID})
        return None if found is None else Stamp(found["version"], found["oldest"])


# The options that distinguish two indexes over the same fields.
_OPTIONS = ("unique", "sparse", "expireAfterSeconds", "partialFilterExpression")
_OF_EVERY_COLLECTION = "_id_"


class CollectionIndex(Struct, frozen=True):
    """An index: its fields with their order (1 or -1), and its options."""

    collection: str
    name: str
    keys: tuple[tuple[str, Any], ...]
    options: tuple[tuple[str, str], ...] = ()

    @property
    def does(self) -> tuple[str, tuple[tuple[str, Any], ...], tuple[tuple[str, str], ...]]:
        """The work of the index, whatever its name."""
        return self.collection, self.keys, self.options

    def hinders(self, other: "CollectionIndex") -> bool:
        return self.collection == other.collection and (self.name == other.name or self.keys == other.keys)

    def __str__(self) -> str:
        fields = ", ".join(field if order == 1 else f"{field} ({order})" for field, order in self.keys)
        kind = "".join(f"{name} " for name, value in self.options if value == "True")
        return f"{self.collection}: {kind}{fields}"


async def find_wanted(makers: Iterable[Callable[[AsyncDatabase[Document]], Aggregate]]) -> "_Recorder":
    """The collections and indexes that `setup` of these kinds of documents would make."""
    recorder = _Recorder()
    for make in makers:
        with suppress(_NotOfIndexes):
            await make(cast(Any, recorder)).setup()
    return recorder


def read_indexes(collection: str, information: Mapping[str, Mapping[str, Any]]) -> list[CollectionIndex]:
    return [
        _index(collection, name, described["key"], described)
        for name, described in information.items()
        if name != _OF_EVERY_COLLECTION
    ]


def _index(
    collection: str, name: str, keys: Iterable[tuple[str, Any]], described: Mapping[str, Any]
) -> CollectionIndex:
    # Some servers return the orders as floats.
    ordered = tuple((field, int(order) if isinstance(order, float) else order) for field, order in keys)
    chosen = ((option, described[option]) for option in _OPTIONS if described.get(option))
    # The driver reads a filter as a `SON`, whose text differs from that of its `dict`.
    options = tuple((option, str(value.to_dict() if isinstance(value, SON) else value)) for option, value in chosen)
    return CollectionIndex(collection, name, ordered, options)


class _NotOfIndexes(Exception):
    """A setup has named its indexes and goes on to change documents."""


class _Recorder:
    """Takes the place of a database, and records the collections and indexes asked of it."""

    def __init__(self) -> None:
        self.collections: dict[str, None] = {}
        self.indexes: list[CollectionIndex] = []
        self.models: dict[str, list[IndexModel]] = {}

    def __getitem__(self, name: str) -> "_RecordedCollection":
        return _RecordedCollection(self, name)

    def with_options(self, **_: object) -> Self:
        return self

    async def create_collection(self, name: str) -> None:
        self.collections[name] = None


class _RecordedCollection:
    def __init__(self, database: _Recorder, name: str) -> None:
        self.database = database
        self.name = name

    def with_options(self, **_: object) -> Self:
        return self

    async def create_index(self, keys: Sequence[tuple[str, Any]], **options: Any) -> None:
        model = IndexModel(keys, **options)
        described = model.document
        await self.database.create_collection(self.name)
        self.database.indexes.append(_index(self.name, described["name"], described["key"].items(), described))
        self.database.models.setdefault(self.name, []).append(model)

    def __getattr__(self, operation: str) -> Any:
        raise _NotOfIndexes(operation)


_MONGODB_PORT = 27017


class Membership(Struct, frozen=True):
    """The server's replica set, empty for a single server; a `mongos` names none. `skew` is the server's clock minus
    the local one."""

    replica_set: str
    skew: timedelta
    is_router: bool = False


class Grants(Struct, frozen=True):
    user: str
    missing: Sequence[str]
    database: str = ""


class IndexComparison(Struct, frozen=True):
    """The indexes and collections of `Store.setup` that are missing, and the other indexes that prevent them."""

    missing: Sequence[CollectionIndex]
    hindering: Sequence[CollectionIndex]
    collections: Sequence[str]


def store_addresses(url: str) -> list[tuple[str, int]]:
    """The hosts and ports in a `mongodb://` URL; none if DNS has them (`mongodb+srv://`)."""
    if not url.startswith(SCHEME):
        return []
    return [(host, port or _MONGODB_PORT) for host, port in parse_uri(url)["nodelist"]]


class StoreInspection:
    """Questions to the server of one database. They also raise `Unserved`."""

    def __init__(
        self, database: AsyncDatabase[Document], makers: Iterable[Callable[[AsyncDatabase[Document]], Aggregate]]
    ) -> None:
        self._database = database
        self._makers = makers

    async def read_version(self) -> str:
        """The version of the server. An answer proves that the login is accepted."""
        return str((await self._ask("buildInfo"))["version"])

    async def read_membership(self) -> Membership:
        await self._ask("ping")  # so that no connection is made within the measured time
        began, asked_at = time.perf_counter(), datetime.now(UTC)
        hello = await self._ask("hello")
        round_trip = timedelta(seconds=time.perf_counter() - began)
        skew = hello["localTime"].replace(tzinfo=UTC) - (asked_at + round_trip / 2)
        return Membership(hello.get("setName", ""), skew, is_router=hello.get("msg") == "isdbgrid")

    async def read_grants(self, needed: Iterable[str]) -> Grants:
        """The `needed` actions that the user may not do on every collection of the database."""
        with translate_errors():
            answer = await self._database.client.admin.command("connectionStatus", showPrivileges=True)
        known: Mapping[str, Any] = answer["authInfo"]
        users = known["authenticatedUsers"]
        if not users:
            return Grants("", ())
        granted = find_allowed(known.get("authenticatedUserPrivileges", ()), self._database.name)
        missing = [action for action in needed if not granted & {action, "anyAction"}]
        return Grants(users[0]["user"], missing, users[0]["db"])

    async def write_nothing(self) -> None:
        """Update a missing document: the server answers after a majority has caught up."""
        with translate_errors():
            await self._database["meta"].update_one({"_id": "doctor: there is none"}, {"$set": {"seen": True}})

    async def end_no_session(self) -> None:
        """End the session of a random id, as workers end those of dead workers."""
        with translate_errors():
            await end_session(self._database, secrets.token_hex(16))

    async def count_equal_updates(self) -> int:
        """The number of documents that an update without a change counts as modified. The stamp is updated this way."""
        with translate_errors():
            stamp = {"_id": {"$in": ["schema"]}}
            return (await self._database["meta"].update_many(stamp, [{"$replaceWith": "$$ROOT"}])).modified_count

    async def compare_indexes(self) -> IndexComparison:
        wanted = await find_wanted(self._makers)
        with translate_errors():
            present = set(await self._database.list_collection_names())
            found = [
                index
                for name in wanted.collections
                if name in present
                for index in read_indexes(name, await self._database[name].index_information())
            ]
        does = {index.does for index in found}
        missing = [index for index in wanted.indexes if index.does not in does]
        ours = {index.does for index in wanted.indexes}
        return IndexComparison(
            missing=missing,
            hindering=[
                index for index in found if index.does not in ours and any(index.hinders(other) for other in missing)
            ],
            collections=[name for name in wanted.collections if name not in present],
        )

    async def _ask(self, command: str) -> Mapping[str, Any]:
        with translate_errors():
            answer: Mapping[str, Any] = await self._database.command(command)
        return answer


def find_allowed(privileges: Iterable[Mapping[str, Any]], database: str) -> set[str]:
    actions: set[str] = set()
    for privilege in privileges:
        resource = privilege["resource"]
        if resource.get("anyResource") or (resource.get("db") in {"", database} and resource.get("collection") == ""):
            actions.update(privilege["actions"])
    return actions
