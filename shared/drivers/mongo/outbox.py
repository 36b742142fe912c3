"""The outbox: Carillon's own events until a fan-out has published them.

An event is stored only if a subscription has its topic, so a deployment without such subscriptions makes one query. A
suspended subscription counts, because the replay after its resumption finds the event in the log. A repeated step
stores its event once, because the event's id follows from its content. A fan-out leases some events, publishes and
removes them.
"""

import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace
from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.bus.rules.subscriptions import SubscriptionStatus
from shared.core.documents import OwnEvent
from shared.drivers.mongo.documents import Aggregate, Codec, Document, insert_new, make, time_of

OUTBOX = "outbox"

_SUBSCRIPTIONS = "bus_subscriptions"
_PRESENT = {"$ne": SubscriptionStatus.REMOVED.value}
_codec = Codec(OwnEvent)


class Outbox(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._events = database[OUTBOX]
        self._subscriptions = database[_SUBSCRIPTIONS]

    async def setup(self) -> None:
        await make(self._events)
        await self._events.create_index([("stored_at", ASCENDING)])

    async def add(self, events: Sequence[OwnEvent]) -> None:
        """Store the events whose topics are subscribed to. A stored event stays as it is."""
        documents = await prepare_for_outbox(self._database, events)
        await insert_new(self._events, documents)

    async def take(self, now: datetime, until: datetime, limit: int) -> list[OwnEvent]:
        """Lease up to `limit` events, the oldest first. No other fan-out takes them before `until`."""
        free = not_taken(now)
        found = await self._events.find(free, {"_id": 1}).sort("stored_at", ASCENDING).limit(limit).to_list()
        if not found:
            return []
        ids, token = {"_id": {"$in": [document["_id"] for document in found]}}, secrets.token_hex(8)
        await self._events.update_many(ids | free, {"$set": {"taken_until": until, "token": token}})
        taken = await self._events.find(ids | {"token": token}).sort("stored_at", ASCENDING).to_list()
        return [_codec.value(document) for document in taken]

    async def remove(self, events: Sequence[OwnEvent]) -> None:
        await self._events.delete_many({"_id": {"$in": [event.id for event in events]}})

    async def find_oldest(self) -> datetime | None:
        found = await self._events.find({}, {"stored_at": 1}).sort("stored_at", ASCENDING).limit(1).to_list()
        return found[0]["stored_at"] if found else None

    async def find_subscribers(self, topics: Sequence[str]) -> Mapping[str, frozenset[str]]:
        query = {"topics": {"$in": list(topics)}, "state": _PRESENT}
        by_topic = defaultdict[str, set[str]](set)
        async for document in self._subscriptions.find(query, {"namespace": 1, "topics": 1}):
            for topic in document["topics"]:
                by_topic[topic].add(document["namespace"])
        return {topic: frozenset(by_topic[topic]) for topic in topics}


def not_taken(now: datetime) -> Document:
    return {"taken_until": {"$not": {"$gt": now}}}


async def prepare_for_outbox(database: AsyncDatabase[Document], events: Sequence[OwnEvent]) -> list[Document]:
    """The documents to insert: events whose topics are subscribed to. Raises the driver's errors."""
    wanted = set[str]()
    for topic in sorted({event.topic for event in events}):
        if await database[_SUBSCRIPTIONS].find_one({"topics": topic, "state": _PRESENT}, {"_id": 1}) is not None:
            wanted.add(topic)
    if not wanted:
        return []
    now = time_of(await database.command("hello"))
    return [_codec.document(replace(event, stored_at=now)) for event in events if event.topic in wanted]
