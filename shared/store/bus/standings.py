"""Figures of waiting and due events. They write nothing and read no event."""

from collections.abc import Sequence
from datetime import datetime

from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.bus.backlog import Backlog
from shared.domain.bus.deliveries import DeliveryStatus
from shared.domain.bus.wake_ups import QUEUE_OWNER
from shared.store.bus.cuts import DELIVERIES
from shared.store.bus.flushes import CHUNKS
from shared.store.bus.gone_queues import GONE
from shared.store.documents import Aggregate, Document

_GONE_LEFT_OUT = 1_000  # a server compares each chunk with all of them; beyond, chunks count until they are swept
_OF_THE_BUS = {"$gte": f"{QUEUE_OWNER}/", "$lt": f"{QUEUE_OWNER}0"}  # "0" follows "/"


def sum_of_chunks(query: Document) -> list[Document]:
    """The pipeline that sums the chunks of each queue."""
    summed = {"n": {"$sum": "$n"}, "oldest": {"$min": "$first_at"}, "bytes": {"$sum": "$bytes"}}
    return [{"$match": query}, {"$group": {"_id": "$queue"} | summed}]


def backlog_of(summed: Document) -> Backlog:
    """The backlog of a result of `sum_of_chunks`."""
    return Backlog(summed["n"], summed["oldest"], summed["bytes"])


class BusStandings(Aggregate):
    """Figures of the collections of the bus."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._chunks = database[CHUNKS]
        self._deliveries = database[DELIVERIES]
        self._gone = database[GONE]
        self._occurrences = database["occurrences"]

    async def read_uncut(self, queues: Sequence[str]) -> dict[str, Backlog]:
        """The uncut events of each queue that has some."""
        found = await (await self._chunks.aggregate(sum_of_chunks({"queue": {"$in": list(queues)}}))).to_list()
        return {each["_id"]: backlog_of(each) for each in found}

    async def read_open(self, queues: Sequence[str]) -> dict[str, Backlog]:
        """The events in open deliveries of each queue that has some."""
        pipeline: list[Document] = [
            {"$match": {"queue": {"$in": list(queues)}, "status": DeliveryStatus.OPEN.value}},
            {"$group": {"_id": "$queue", "n": {"$sum": "$count"}, "oldest": {"$min": "$first_at"}}},
        ]
        found = await (await self._deliveries.aggregate(pipeline)).to_list()
        return {document["_id"]: Backlog(document["n"], document["oldest"]) for document in found}

    async def read_all(self) -> Backlog | None:
        """The backlog of all queues and open deliveries; `None` if it is empty. Chunks of removed subscriptions do not
        count: a sweep deletes them later."""
        gone = [each["_id"] for each in await self._gone.find().limit(_GONE_LEFT_OUT).to_list()]
        uncut: list[Document] = [
            {"$match": {"queue": {"$gt": "", "$nin": gone}}},  # so that an index covers the query
            {"$group": {"_id": None, "n": {"$sum": "$n"}, "oldest": {"$min": "$first_at"}}},
        ]
        cut: list[Document] = [
            {"$match": {"status": DeliveryStatus.OPEN.value, "queue": {"$nin": gone}}},
            {"$group": {"_id": None, "n": {"$sum": "$count"}, "oldest": {"$min": "$first_at"}}},
        ]
        # Events that are cut in between are counted twice rather than not at all.
        found = await (await self._chunks.aggregate(uncut)).to_list()
        found += await (await self._deliveries.aggregate(cut)).to_list()
        if not found:
            return None
        return Backlog(sum(each["n"] for each in found), min(each["oldest"] for each in found))

    async def count_due_batches(self, until: datetime) -> int:
        """The number of batches due by `until`, of all queues: for each queue its events by full batches, the last one
        in part."""
        pipeline: list[Document] = [
            {"$match": {"owner": _OF_THE_BUS, "fires_at": {"$lte": until}, "of.waiting": {"$gt": 0}}},
            {"$group": {"_id": None, "n": {"$sum": {"$ceil": {"$divide": ["$of.waiting", "$of.full"]}}}}},
        ]
        found = await (await self._occurrences.aggregate(pipeline)).to_list()
        return int(found[0]["n"]) if found else 0
