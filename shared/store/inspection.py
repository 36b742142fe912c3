"""The questions of `carillon doctor` to MongoDB. They change nothing that is stored."""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.uri_parser import SCHEME, parse_uri

from shared.store.documents import Aggregate, Document, translate_errors
from shared.store.indexes import CollectionIndex, find_wanted, read_indexes
from shared.store.transactions import end_session

_MONGODB_PORT = 27017


class Membership(Struct, frozen=True):
    """The server's replica set, empty for a single server; a `mongos` names none. `skew` is the server's clock minus
    the local one."""

    replica_set: str
    skew: timedelta
    is_router: bool = False


class Grants(Struct, frozen=True):
    """The client's user (empty if the server needs no login), the user's database, and the missing rights."""

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
        """The replica set, and the clock at half a round trip after the question."""
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
        """The difference between the database and what `setup` makes."""
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
    """The actions that these privileges allow on all collections of the database."""
    actions: set[str] = set()
    for privilege in privileges:
        resource = privilege["resource"]
        if resource.get("anyResource") or (resource.get("db") in {"", database} and resource.get("collection") == ""):
            actions.update(privilege["actions"])
    return actions
