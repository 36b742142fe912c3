"""Topics of the bus, and the registry: a version that every change of subscriptions raises, in its transaction.

The fan-out reads it in the transaction of its flush. If the version differs from that of the fold, nothing is
written. So every flush that begins after the answer to a change uses that change, even while the primary changes,
because a flush counts only after a majority has it.

A process that dies or freezes in such a transaction would block the changes of all namespaces, for a minute if only
the server ends it. So a writer first notes its session, outside the transaction, which deletes the note. A process
that finds a note older than a transaction takes ends its session. A live writer begins anew, because nothing was
stored.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

import structlog
from msgspec import convert, to_builtins
from pymongo import ASCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.bus.rules.events import Topic
from shared.bus.rules.subscriptions import FormerChoice, SubscriptionStatus
from shared.core.documents import LogEnds
from shared.core.errors import Unavailable
from shared.drivers.mongo.documents import (
    Aggregate,
    Codec,
    Document,
    Page,
    forget_some,
    insert_new,
    make,
    read_page,
    translate_errors,
)
from shared.drivers.mongo.transactions import LastingConflict, OwnSession, end_session, run_transaction

log = structlog.get_logger(__name__)
SUBSCRIPTIONS = "bus_subscriptions"
"""The collection of the registry's document."""
_REGISTRY = {"_id": "registry"}


async def make_registry(database: AsyncDatabase[Document]) -> None:
    await database[SUBSCRIPTIONS].update_one(_REGISTRY, {"$setOnInsert": {"version": 0, "forgotten": 0}}, upsert=True)


async def raise_version(database: AsyncDatabase[Document], session: AsyncClientSession) -> int:
    document = await database[SUBSCRIPTIONS].find_one_and_update(
        _REGISTRY, {"$inc": {"version": 1}}, return_document=True, session=session
    )
    assert document is not None, "`setup` makes the registry"
    version: int = document["version"]
    return version


async def note_forgotten(database: AsyncDatabase[Document], version: int, session: AsyncClientSession) -> None:
    """Record that tombstones are gone: a reader below this version reads everything anew."""
    await database[SUBSCRIPTIONS].update_one(_REGISTRY, {"$set": {"forgotten": version}}, session=session)


async def read_registry(
    database: AsyncDatabase[Document], session: AsyncClientSession | None = None
) -> tuple[int, int]:
    """The version, and the version from which on all tombstones are there."""
    with translate_errors():
        document = await database[SUBSCRIPTIONS].find_one(_REGISTRY, session=session)
    return (0, 0) if document is None else (document["version"], document["forgotten"])


_ALLOWED = timedelta(seconds=2)  # such transactions take some milliseconds
_PATIENCE, _WAIT_SECONDS = 0.5, 4.0
Written = TypeVar("Written")


class RegistryWriter:
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._notes = database["bus_registry_writers"]
        self._own: OwnSession | None = None
        self._turn = asyncio.Lock()

    async def setup(self) -> None:
        await make(self._notes)

    async def write(self, work: Callable[[AsyncClientSession], Awaitable[Written]], *, now: datetime) -> Written:
        """The answer of `work`, after its writes are stored; it is called again after a conflict. An error in `work`
        ends the transaction without a write. `now` is the database's time."""
        began = time.monotonic()
        # Concurrent changes would undo each other again and again.
        async with self._turn:
            session = self._open_session()
            await self._note(session, now + _since(began))
            while True:
                try:
                    transact = self._forget_note_after(work, session)
                    return await run_transaction(self._database, transact, session=session, patience=_PATIENCE)
                except LastingConflict:
                    if _since(began) > timedelta(seconds=_WAIT_SECONDS):
                        raise
                    await self.end_overdue(now + _since(began))
                except Unavailable:
                    raise  # the outcome is unknown: the note stays
                except Exception:
                    await self._forget_note(session)
                    raise

    async def end_overdue(self, now: datetime) -> int:
        with translate_errors():
            found = await self._notes.find({"at": {"$lt": now - _ALLOWED}}, {"_id": 1}).to_list()
        names = [document["_id"] for document in found if self._own is None or document["_id"] != self._own.name]
        for name in names:
            log.warning("who changed subscriptions has not come back: its transaction is ended", session=name)
            await end_session(self._database, name)
            with translate_errors():
                await self._notes.delete_one({"_id": name, "at": {"$lt": now - _ALLOWED}})
        return len(names)

    async def _note(self, session: OwnSession, at: datetime) -> None:
        with translate_errors():
            await self._notes.update_one({"_id": session.name}, {"$set": {"at": at}}, upsert=True)

    async def _forget_note(self, session: OwnSession) -> None:
        """Nothing was written. A failure here costs a false alarm."""
        with suppress(Unavailable), translate_errors():
            await self._notes.delete_one({"_id": session.name})

    def _forget_note_after(
        self, work: Callable[[AsyncClientSession], Awaitable[Written]], own: OwnSession
    ) -> Callable[[AsyncClientSession], Awaitable[Written]]:
        async def transact(session: AsyncClientSession) -> Written:
            written = await work(session)
            await self._notes.delete_one({"_id": own.name}, session=session)
            return written

        return transact

    def _open_session(self) -> OwnSession:
        if self._own is None:
            self._own = OwnSession(self._database)
        return self._own


def _since(began: float) -> timedelta:
    return timedelta(seconds=time.monotonic() - began)


GONE_TOPICS = "bus_gone_topics"
_codec = Codec(Topic)
_READ_AT_ONCE = 1_000


class TopicSubscribed(Exception):
    """Aborts a deletion: other subscriptions use the topic."""

    def __init__(self, others: int) -> None:
        super().__init__(others)
        self.others = others


class BusTopics(Aggregate):
    """The `bus_topics` collection, the counts of `bus_topic_counts`, and in `bus_gone_topics` the log's ends when a
    topic was removed: subscribers to a new topic of that name get no event before them."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._topics = database["bus_topics"]
        self._counts = database["bus_topic_counts"]
        self._gone = database[GONE_TOPICS]
        self._subscriptions = database[SUBSCRIPTIONS]
        self._writer = RegistryWriter(database)

    async def setup(self) -> None:
        await self._writer.setup()
        await make(self._topics)
        await self._gone.create_index([("at", ASCENDING)])
        await self._topics.create_index([("owner", ASCENDING)])
        await self._counts.create_index([("topic", ASCENDING)])

    async def get(self, name: str) -> Topic | None:
        return _codec.maybe(await self._topics.find_one({"_id": name}))

    async def with_names(self, names: Sequence[str]) -> dict[str, Topic]:
        found = await self._topics.find({"_id": {"$in": list(names)}}, batch_size=_READ_AT_ONCE).to_list()
        return {topic.id: topic for topic in map(_codec.value, found)}

    async def page(self, *, after: str = "", limit: int) -> Page[Topic]:
        return await read_page(self._topics, {"_id": {"$gt": after}}, _codec.value, order=["_id"], limit=limit)

    async def add(self, topic: Topic) -> bool:
        return not await insert_new(self._topics, [_codec.document(topic)])

    async def claim(self, name: str, namespace: str) -> bool:
        """Make a namespace the owner of a topic without an owner; `False` if it has one or is gone."""
        moved = await self._topics.update_one({"_id": name, "owner": ""}, {"$set": {"owner": namespace}})
        return moved.matched_count == 1

    async def replace(self, before: Topic, after: Topic, *, now: datetime) -> bool:
        """Change the owner, description and privacy of a topic; `False` if they have changed or the topic is gone.
        Raises `TopicSubscribed` if it becomes private and subscriptions of others use it."""
        private = {"$eq": True} if before.private else {"$ne": True}
        stands = {"_id": before.id, "owner": before.owner, "description": before.description, "private": private}
        change = {"$set": {"owner": after.owner, "description": after.description, "private": after.private}}
        if not after.private:
            return (await self._topics.update_one(stands, change)).matched_count == 1

        async def transact(session: AsyncClientSession) -> bool:
            if not (await self._topics.update_one(stands, change, session=session)).matched_count:
                return False
            await raise_version(self._database, session)  # no subscription is made meanwhile
            await self._check_subscribers(after.id, after.owner, session)
            return True

        return await self._writer.write(transact, now=now)

    async def count_owned(self, namespace: str) -> int:
        return await self._topics.count_documents({"owner": namespace})

    async def read_counts(self, names: Sequence[str]) -> Mapping[str, tuple[int, int]]:
        """The number and bytes of events on these topics that went to subscriptions."""
        pipeline: list[Document] = [
            {"$match": {"topic": {"$in": list(names)}}},
            {"$group": {"_id": "$topic", "n": {"$sum": "$n"}, "bytes": {"$sum": "$bytes"}}},
        ]
        found = await (await self._counts.aggregate(pipeline)).to_list()
        return {document["_id"]: (document["n"], document["bytes"]) for document in found}

    async def remove(self, name: str, owner: str, ends: LogEnds, *, of_others: bool, now: datetime) -> bool:
        """Remove a topic of this owner, its counts, and its name from every subscription for events after `ends`, in
        one transaction; `False` if the owner has changed. Raises `TopicSubscribed` if subscriptions of others use it,
        unless `of_others`."""
        ends_document = to_builtins(ends)

        async def transact(session: AsyncClientSession) -> bool:
            gone = await self._topics.delete_one({"_id": name, "owner": owner}, session=session)
            if not gone.deleted_count:
                return False
            version = await raise_version(self._database, session)
            if not of_others:
                await self._check_subscribers(name, owner, session)
            stood: Document = {"topics": [name], "filter": "$filter", "ends": {"$literal": ends_document}}
            former: Document = {"$concatArrays": [{"$ifNull": ["$former", []]}, [stood]]}
            await self._subscriptions.update_many({"topics": name}, [{"$set": {"former": former}}], session=session)
            change: Document = {"$pull": {"topics": name}, "$set": {"version": version, "updated_at": now}}
            await self._subscriptions.update_many({"topics": name}, change, session=session)
            gone_now = {"at": now, "ends": ends_document}
            await self._gone.replace_one({"_id": name}, gone_now, upsert=True, session=session)
            await self._counts.delete_many({"topic": name}, session=session)
            return True

        return await self._writer.write(transact, now=now)

    async def read_gone(self, names: Sequence[str]) -> tuple[FormerChoice, ...]:
        return await read_gone_topics(self._database, names)

    async def forget_gone(self, before: datetime, limit: int) -> int:
        return await forget_some(self._gone, {"at": {"$lt": before}}, limit)

    async def _check_subscribers(self, name: str, owner: str, session: AsyncClientSession) -> None:
        others = {"topics": name, "namespace": {"$ne": owner}, "state": {"$ne": SubscriptionStatus.REMOVED.value}}
        if count := await self._subscriptions.count_documents(others, session=session):
            raise TopicSubscribed(count)


async def add_missing_topics(
    database: AsyncDatabase[Document], names: Sequence[str], namespace: str, now: datetime, session: AsyncClientSession
) -> None:
    """Make missing topics without an owner, in the transaction of a subscription to them. Raises `PrivateTopic` for a
    private topic of another namespace, and the driver's errors: another process may make one at the same time."""
    topics = database["bus_topics"]
    found = await topics.find({"_id": {"$in": list(names)}}, session=session).to_list()
    present = {document["_id"] for document in found}
    for topic in map(_codec.value, found):
        topic.check_subscriber(namespace, field="topics")
    missing = [_codec.document(Topic(id=name, created_at=now)) for name in names if name not in present]
    if missing:
        await topics.insert_many(missing, session=session)


async def read_gone_topics(
    database: AsyncDatabase[Document], names: Sequence[str], session: AsyncClientSession | None = None
) -> tuple[FormerChoice, ...]:
    """The former choices of a subscription that is new to these topics: it gets nothing that the log had when they were
    removed. Raises the driver's errors."""
    found = await database[GONE_TOPICS].find({"_id": {"$in": list(names)}}, session=session).to_list()
    return tuple(
        FormerChoice(topics=(document["_id"],), filter=None, ends=convert(document["ends"], LogEnds))
        for document in found
    )


async def forget_free_topics(
    database: AsyncDatabase[Document], names: Sequence[str], session: AsyncClientSession
) -> None:
    """Delete the topics that have no subscription and no owner, in this transaction, because only subscribing made
    them. Raises the driver's errors."""
    unowned = {"_id": {"$in": list(names)}, "owner": "", "description": ""}
    found = await database["bus_topics"].find(unowned, {"_id": 1}, session=session).to_list() if names else []
    if not found:
        return
    free = {"$in": [document["_id"] for document in found]}
    subscribed: list[Document] = [
        {"$match": {"topics": free, "state": {"$ne": SubscriptionStatus.REMOVED.value}}},
        {"$unwind": "$topics"},
        {"$match": {"topics": free}},
        {"$group": {"_id": "$topics"}},
    ]
    kept = await (await database[SUBSCRIPTIONS].aggregate(subscribed, session=session)).to_list()
    gone = sorted(set(free["$in"]) - {document["_id"] for document in kept})
    await database["bus_topics"].delete_many({"_id": {"$in": gone}, "owner": ""}, session=session)
