"""Reads of the ledger for users: the messages of a job, of a recipient, or with a provider's id."""

from collections.abc import Collection
from datetime import datetime

from msgspec import Struct
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.instants import EPOCH
from shared.domain.messages.ledger import Message, MessageState
from shared.store.documents import Aggregate, Codec, Document, Page, read_page
from shared.store.messages.sums import beginning_with

_codec = Codec(Message)
_BATCH = 1_000
# Default values are not stored in the document.
_UNWRITTEN = {state: [None] if state is MessageState.UNSENT else [] for state in MessageState}
# Calls of a message change its own times. In that order a reader of pages would see some messages twice, and
# others never. So a job's message has the time of its job.
_INCARNATION = {"$arrayElemAt": [{"$split": ["$_id", "."]}, 0]}
_JOB: Document = {
    "from": "jobs",
    "localField": "job",
    "foreignField": "incarnation",
    "pipeline": [{"$project": {"_id": 0, "created_at": 1}}],
    "as": "job",
}
_MADE = {"$toDate": {"$toLong": {"$divide": ["$job.created_at", 1_000_000]}}}
_ACCEPTED = {"$ifNull": ["$single.created_at", {"$ifNull": [_MADE, EPOCH]}]}


class Dated(Struct, frozen=True):
    """A message, and the time when it or its job was accepted."""

    message: Message
    at: datetime


class LedgerLists(Aggregate):
    """Reads the `messages` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._messages = database["messages"]

    async def page(
        self, incarnation: str, *, state: MessageState | None = None, after: str = "", limit: int
    ) -> Page[Message]:
        """The messages of an incarnation in the order of its audience, after the id `after`; in one state, if given."""
        query = beginning_with(f"{incarnation}.")
        query["_id"]["$gt"] = max(after, query["_id"]["$gt"])
        query |= {} if state is None else {"state": {"$in": [state.value, *_UNWRITTEN[state]]}}
        return await read_page(self._messages, query, _codec.value, order=("_id",), limit=limit, batch=_BATCH)

    async def find_recipient(
        self, app_id: str, addresses: Collection[str], *, before: tuple[datetime, str] | None = None, limit: int
    ) -> Page[Dated]:
        """The app's messages to one of these addresses, the newest first, behind the instant and id `before`."""
        pipeline: list[Document] = [
            {"$match": {"app_id": app_id, "to": {"$in": list(addresses)}}},
            {"$addFields": {"job": _INCARNATION}},
            {"$lookup": _JOB},
            {"$unwind": {"path": "$job", "preserveNullAndEmptyArrays": True}},
            {"$addFields": {"at": _ACCEPTED}},
            {"$project": {"job": 0}},
        ]
        if before is not None:
            at, message_id = before
            pipeline.append({"$match": {"$or": [{"at": {"$lt": at}}, {"at": at, "_id": {"$lt": message_id}}]}})
        pipeline += [{"$sort": {"at": -1, "_id": -1}}, {"$limit": limit + 1}]
        found = await (await self._messages.aggregate(pipeline, batchSize=_BATCH)).to_list()
        page = Page(Dated(_codec.value(document), document["at"]) for document in found[:limit])
        page.more = len(found) > limit
        return page

    async def find_ref(self, app_id: str, ref: str) -> list[Message]:
        """The app's messages with this provider id: one, unless the provider used it twice."""
        found = await self._messages.find({"ref": ref, "app_id": app_id}).limit(_BATCH).to_list()
        return [_codec.value(document) for document in found]
