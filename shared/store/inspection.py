"""The questions of `carillon doctor` to MongoDB itself. Nothing here changes what is stored."""

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError
from pymongo.uri_parser import SCHEME, parse_uri

from shared.domain.errors import Denied, Unavailable, Unserved
from shared.store.documents import DENIALS, NO_RIGHT, Document, translate_errors
from shared.store.indexes import CollectionIndex, Preparable, find_wanted, read_indexes
from shared.store.transactions import end_session

_MONGODB_PORT = 27017


class Membership(Struct, frozen=True):
    """The server's account of itself: its replica set, how far its clock is from ours (more is ahead), and whether it
    is the router of a sharded cluster (`mongos`), which names no replica set."""

    replica_set: str
    skew: timedelta
    is_router: bool = False


class IndexComparison(Struct, frozen=True):
    """The indexes that are not as `Store.setup` makes them. One that is `other` stands in the way of a missing one: it
    has its name, or its fields and other options."""

    made: int
    missing: Sequence[CollectionIndex]
    foreign: Sequence[CollectionIndex]
    other: Sequence[CollectionIndex]
    collections: Sequence[str]


class Grants(Struct, frozen=True):
    """The user that we are, empty where the server asks nobody who they are; what is missing of what we need; and the
    database that the user is one of."""

    user: str
    missing: Sequence[str]
    database: str = ""


def store_addresses(url: str) -> list[tuple[str, int]]:
    """The hosts and ports that a `mongodb://` URL names; none where DNS does (`mongodb+srv://`)."""
    if not url.startswith(SCHEME):
        return []
    return [(host, port or _MONGODB_PORT) for host, port in parse_uri(url)["nodelist"]]


def store_uses_tls(url: str) -> bool:
    """Whether the URL asks for TLS."""
    return not url.startswith(SCHEME) or bool(parse_uri(url)["options"].get("tls"))


class StoreInspection:
    """Questions to the server of one database. All raise `Unavailable`, or `Denied` where it does not let us ask."""

    def __init__(
        self, database: AsyncDatabase[Document], makers: Iterable[Callable[[AsyncDatabase[Document]], Preparable]]
    ) -> None:
        self._database = database
        self._makers = makers

    async def read_version(self) -> str:
        """The version of the server; with it, the login is known to be good."""
        try:
            return str((await self._ask("buildInfo"))["version"])
        except Unavailable as error:
            if isinstance(error.__cause__, ServerSelectionTimeoutError):
                raise Unavailable(_why_none_is_selected(str(error.__cause__))) from error
            raise

    async def read_membership(self) -> Membership:
        """The replica set, and the clock, half a round trip after we asked."""
        await self._ask("ping")  # so that no connection has to be made within what is measured
        began, asked_at = time.perf_counter(), datetime.now(UTC)
        hello = await self._ask("hello")
        round_trip = timedelta(seconds=time.perf_counter() - began)
        skew = hello["localTime"].replace(tzinfo=UTC) - (asked_at + round_trip / 2)
        return Membership(hello.get("setName", ""), skew, is_router=hello.get("msg") == "isdbgrid")

    async def read_grants(self, needed: Iterable[str]) -> Grants:
        """Which of these actions on the database we may not do."""
        answer = await self._database.client.admin.command("connectionStatus", showPrivileges=True)
        known: Mapping[str, Any] = answer["authInfo"]
        users = known["authenticatedUsers"]
        if not users:
            return Grants("", ())
        granted = _allowed_actions(known.get("authenticatedUserPrivileges", ()), self._database.name)
        missing = [action for action in needed if not granted & {action, "anyAction"}]
        return Grants(users[0]["user"], missing, users[0]["db"])

    async def write_nothing(self) -> None:
        """Write as durably as everything is written, to no document: the server answers once a majority has caught up
        with it, and nothing has changed."""
        with _translate_all_errors():
            await self._database["meta"].update_one({"_id": "doctor: there is none"}, {"$set": {"seen": True}})

    async def end_no_session(self) -> None:
        """End the session of a random id, as workers do with those of killed ones. Nobody has it."""
        with _translate_all_errors():
            await end_session(self._database, secrets.token_hex(16))

    async def count_equal_updates(self) -> int:
        """How many documents count as modified by an update that leaves them as they are: the ledger, cursors and
        flushes rely on zero. It tries the stamp of the database."""
        with _translate_all_errors():
            stamp = {"_id": {"$in": ["schema"]}}
            return (await self._database["meta"].update_many(stamp, [{"$replaceWith": "$$ROOT"}])).modified_count

    async def compare_indexes(self) -> IndexComparison:
        """The indexes that there are beside those that `setup` makes."""
        wanted = await find_wanted(self._makers)
        with _translate_all_errors():
            present = set(await self._database.list_collection_names())
            found = [
                index
                for name in wanted.collections
                if name in present
                for index in read_indexes(name, await self._database[name].index_information())
            ]
        does = {index.does for index in found}
        missing = [index for index in wanted.indexes if index.does not in does]
        of_ours = {index.does for index in wanted.indexes}
        strangers = [index for index in found if index.does not in of_ours]
        others = [index for index in strangers if any(index.hinders(wanted) for wanted in missing)]
        return IndexComparison(
            made=len(wanted.indexes) - len(missing),
            missing=missing,
            foreign=[index for index in strangers if index not in others],
            other=others,
            collections=[name for name in wanted.collections if name not in present],
        )

    async def _ask(self, command: str) -> Mapping[str, Any]:
        with _translate_all_errors():
            answer: Mapping[str, Any] = await self._database.command(command)
        return answer


def _allowed_actions(privileges: Iterable[Mapping[str, Any]], database: str) -> set[str]:
    """The actions that we may do on all collections of this database."""
    actions: set[str] = set()
    for privilege in privileges:
        resource = privilege["resource"]
        everywhere = resource.get("anyResource") or (
            resource.get("db") in {"", database} and resource.get("collection") == ""
        )
        if everywhere:
            actions.update(privilege["actions"])
    return actions


def _why_none_is_selected(said: str) -> str:
    """The message of the driver, without the page of topology that follows."""
    reason = re.split(r",? Timeout: | \(configured ", said, maxsplit=1)[0]
    return "no answer within 4 s" if reason.startswith("No servers found yet") else reason.rstrip(",")


@contextmanager
def _translate_all_errors() -> Iterator[None]:
    """As `translate_errors`, and that of a server which denies us is `Denied`. It tells what it does not allow, which
    holds nothing of our users' here."""
    try:
        with translate_errors():
            yield
    except Unserved as error:
        raise Unavailable(str(error)) from error
    except Unavailable as error:
        cause = error.__cause__
        if not isinstance(cause, OperationFailure) or cause.code not in DENIALS:
            raise
        told = f": {cause.details and cause.details.get('errmsg')}" if cause.code == NO_RIGHT else ""
        raise Denied(f"{error}{told}") from cause
