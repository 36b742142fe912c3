"""Batches: one document each, insert-only and in order, and the present sums of a job's batches.

The end of the plan is an entry with the next ordinal, so if two planners disagree, one of them gets a duplicate
key, whether it adds a batch or the end. Reasons and locales of receipts are lists of pairs, because their keys are
data.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct
from pymongo import ASCENDING, DESCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError
from pymongo.read_concern import ReadConcern

from shared.core.documents import source_of, sources
from shared.drivers.mongo.documents import (
    Aggregate,
    Codec,
    Document,
    Page,
    forget_all,
    is_duplicate,
    read_page,
    read_values,
    translate_errors,
)
from shared.jobs.rules.batches import (
    TRANSITIONS,
    Batch,
    BatchPart,
    BatchStatus,
    Counts,
    Receipt,
    Totals,
    batch_id,
    is_failure,
    is_unfed,
    smaller,
)
from shared.jobs.rules.progress import BatchCounts, Settled

_codec = Codec(Batch, derived=("slot", "settled"))
END = "end"
"""The status of the entry that ends a plan."""
RECEIPT_COUNTS = ("sent", "failed", "skipped", "held_out", "unknown")
"""The counts of a receipt, which can be added up over batches."""


def document_of(batch: Batch) -> Document:
    return _codec.document(batch) | {"receipt": receipt_document(batch.receipt)}


def batch_of(document: Document) -> Batch:
    return _codec.value(document | {"receipt": receipt_of(document["receipt"])})


def receipt_document(receipt: Receipt) -> Document:
    counts: Document = {count: getattr(receipt, count) for count in RECEIPT_COUNTS}
    return counts | {"reasons": list(receipt.reasons.items()), "locales": list(receipt.locales.items())}


def receipt_of(document: Any) -> Receipt:
    """The receipt of a document."""
    counts = {count: document[count] for count in RECEIPT_COUNTS}
    return Receipt(**counts, reasons=dict(document["reasons"]), locales=dict(document["locales"]))


class PlanEnd(Struct, frozen=True):
    """The entry after the last batch: the plan has `ordinal` batches."""

    ordinal: int


class Head(NamedTuple):
    """A chain's lowest unsettled batch, and whether it waits to be fed."""

    ordinal: int
    planned: bool


class Batches(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._batches = database["batches"]

    async def setup(self) -> None:
        await self._batches.create_index([("job_id", ASCENDING), ("ordinal", ASCENDING)], unique=True)
        # Without the status: a batch that moves on while a server scans for heads must not move within the index.
        await self._batches.create_index(
            [("job_id", ASCENDING), ("settled", ASCENDING), ("slot", ASCENDING), ("ordinal", ASCENDING)]
        )

    async def add_page(self, batches: Sequence[Batch]) -> bool:
        """Insert consecutive batches in order; `False` if another planner was first: read `last` and go on."""
        return await self._insert([document_of(batch) for batch in batches])

    async def add_end(self, job_id: str, ordinal: int) -> bool:
        """Insert the end of the plan; `False` if the ordinal is taken."""
        entry = {"_id": batch_id(job_id, ordinal), "job_id": job_id, "ordinal": ordinal, "status": END}
        return await self._insert([entry])

    async def get(self, job_id: str, ordinal: int) -> Batch | None:
        document = await self._batches.find_one({"_id": batch_id(job_id, ordinal), "status": {"$ne": END}})
        return None if document is None else batch_of(document)

    async def last(self, job_id: str) -> Batch | PlanEnd | None:
        """The last entry of the plan; `None` if it is empty."""
        document = await self._batches.find_one({"job_id": job_id}, sort=[("ordinal", DESCENDING)])
        if document is None:
            return None
        return PlanEnd(document["ordinal"]) if document["status"] == END else batch_of(document)

    async def heads(self, job_id: str) -> list[Head]:
        """The lowest unsettled batch of each chain, in order."""
        pipeline: list[Document] = [
            {"$match": {"job_id": job_id, "settled": False}},
            {"$group": {"_id": "$slot", "lowest": {"$min": {"ordinal": "$ordinal", "status": "$status"}}}},
        ]
        lowest = [group["lowest"] async for group in await self._batches.aggregate(pipeline)]
        return sorted(Head(head["ordinal"], is_unfed(BatchStatus(head["status"]))) for head in lowest)

    async def find_settled(self, job_id: str, ordinals: Sequence[int]) -> set[int]:
        query = {"_id": {"$in": [batch_id(job_id, ordinal) for ordinal in ordinals]}, "settled": True}
        return {document["ordinal"] async for document in self._batches.find(query, {"ordinal": 1})}

    async def has_unsettled(self, job_id: str) -> bool:
        return await self._batches.find_one({"job_id": job_id, "settled": False}, {"_id": 1}) is not None

    async def find_on_their_way(self, job_id: str) -> dict[BatchStatus, list[Batch]]:
        found: dict[BatchStatus, list[Batch]] = {BatchStatus.QUEUED: [], BatchStatus.SENDING: []}
        query = {"job_id": job_id, "settled": False, "status": {"$in": sorted(found)}}
        async for document in self._batches.find(query):
            batch = batch_of(document)
            found[batch.status].append(batch)
        return found

    async def queue(self, job_id: str, ordinal: int) -> Batch | None:
        query = {"_id": batch_id(job_id, ordinal)}
        return await self._move(query, BatchStatus.PLANNED, BatchStatus.QUEUED, raise_turn=True)

    async def requeue(self, batch: Batch) -> Batch | None:
        """The same status with the next turn: its present message becomes void, and a new one is due."""
        query = {"_id": batch.id, "status": batch.status.value, "turn": batch.turn, "owner": batch.owner}
        return await self._change(query, {}, raise_turn=True)

    async def put_back(self, batch: Batch) -> Batch | None:
        return await self._move(_as_read(batch), BatchStatus.QUEUED, BatchStatus.PLANNED)

    async def take(self, batch: Batch, *, owner: str) -> Batch | None:
        """queued → sending, owned by a lane; `None` if the turn has passed or another lane was first."""
        change = {"owner": owner, "attempts": batch.attempts + 1}
        dated = ("taken_at", "changed_at") + (() if batch.receipt.recipients else ("began_at",))
        return await self._move(_as_read(batch), BatchStatus.QUEUED, BatchStatus.SENDING, change, dated=dated)

    async def disown(self, batch: Batch) -> Batch | None:
        """sending → queued for a batch whose fenced owner sent nothing; the turn stays."""
        change = {"owner": "", "fruitless": batch.fruitless + 1, "halvings": smaller(batch)}
        return await self._move(_of_this_take(batch), BatchStatus.SENDING, BatchStatus.QUEUED, change)

    async def advance(self, batch: Batch, part: BatchPart, *, halvings: int) -> Batch | None:
        """sending → queued for a batch after this part; the turn stays."""
        change = {
            "owner": "",
            "parts": part.number,
            "next": part.next,
            "receipt": receipt_document(part.receipt),
            "size": max(batch.size, part.receipt.recipients),
            "fruitless": 0,
            "halvings": halvings,
        }
        change |= _holders(batch, part.receipt)
        return await self._move(_of_this_take(batch), BatchStatus.SENDING, BatchStatus.QUEUED, change)

    async def settle(self, batch: Batch, *, to: BatchStatus, receipt: Receipt) -> Batch | None:
        change = _outcome(batch, to, receipt) | _holders(batch, receipt)
        return await self._move(_of_this_take(batch), BatchStatus.SENDING, to, change)

    async def fail(self, batch: Batch, *, receipt: Receipt) -> Batch | None:
        """queued → failed, for a batch that cannot be sent, or not completely."""
        change = _outcome(batch, BatchStatus.FAILED, receipt)
        return await self._move(_as_read(batch), BatchStatus.QUEUED, BatchStatus.FAILED, change)

    async def drop(self, batch: Batch) -> Batch | None:
        return await self._move(_as_read(batch), BatchStatus.QUEUED, BatchStatus.DROPPED, {"settled": True})

    async def drop_unsent(self, job_id: str, job_round: int = 0) -> int:
        """Drop the batches of a job, stopped in this round, that no lane owns or left with messages written ahead;
        returns the number."""
        unsent = {
            "status": {"$in": sorted(sources(TRANSITIONS, BatchStatus.DROPPED))},
            "tally.sending": {"$not": {"$gt": 0}},
        }
        query = {"job_id": job_id, "settled": False, "round": job_round or {"$in": [0, None]}} | unsent
        dropped = {"status": BatchStatus.DROPPED.value, "settled": True}
        result = await self._batches.update_many(query, {"$set": dropped, "$currentDate": {"changed_at": True}})
        return result.modified_count

    async def remove_of(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            await forget_all(self._batches, {"job_id": job_id})

    async def _insert(self, documents: list[Document]) -> bool:
        try:
            with translate_errors():
                await self._batches.insert_many(documents, ordered=True)
        except BulkWriteError as error:
            if is_duplicate(error):
                return False
            raise
        return True

    async def _move(
        self,
        query: Document,
        source: BatchStatus,
        to: BatchStatus,
        fields: Document | None = None,
        *,
        raise_turn: bool = False,
        dated: tuple[str, ...] = ("changed_at",),
    ) -> Batch | None:
        query = query | {"status": source_of(TRANSITIONS, source, to).value}
        return await self._change(query, {"status": to.value} | (fields or {}), raise_turn=raise_turn, dated=dated)

    async def _change(
        self, query: Document, fields: Document, *, raise_turn: bool, dated: tuple[str, ...] = ("changed_at",)
    ) -> Batch | None:
        change: Document = {"$currentDate": dict.fromkeys(dated, True)}
        if fields:
            change["$set"] = fields
        if raise_turn:
            change["$inc"] = {"turn": 1}
        document = await self._batches.find_one_and_update(query, change, return_document=ReturnDocument.AFTER)
        return None if document is None else batch_of(document)


def _as_read(batch: Batch) -> Document:
    """The batch in this turn, without another take since: after one, the recipients that were read may be sent."""
    return {"_id": batch.id, "turn": batch.turn, "attempts": batch.attempts}


def _of_this_take(batch: Batch) -> Document:
    """The batch in this lane and take: a lane may take the parts of one batch one after the other."""
    return {"_id": batch.id, "owner": batch.owner, "attempts": batch.attempts}


def _outcome(batch: Batch, status: BatchStatus, receipt: Receipt) -> Document:
    """Only failed batches, which are few, have `failed_of`: a sparse index finds them."""
    outcome = {"receipt": receipt_document(receipt), "size": receipt.recipients, "settled": True}
    return outcome | ({"failed_of": batch.job_id} if is_failure(status) else {})


def _holders(batch: Batch, receipt: Receipt) -> Document:
    """The takes that held users out, with this one if it did."""
    if receipt.held_out == batch.receipt.held_out:
        return {}
    return {"holders": [*batch.holders, batch.take]}


_BATCH = 100  # with their lists of devices, or forty reasons and locales
_MANY = 1_000  # without lists; a larger read would block the event loop
_COUNTED = dict.fromkeys(
    ("ordinal", "status", "size", "settled", "receipt", "began_at", "taken_at", "changed_at"), 1
) | {"_id": 0}


class BatchSums(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._batches = database["batches"]
        # Otherwise a batch that moves during the sum may count twice. Reads of lists take longer than a server keeps
        # a snapshot.
        self._at_one_moment = self._batches.with_options(read_concern=ReadConcern("snapshot"))

    async def setup(self) -> None:
        """Make the index of failed batches, which are few, and that of recent changes."""
        await self._batches.create_index([("failed_of", ASCENDING)], sparse=True)
        await self._batches.create_index([("job_id", ASCENDING), ("changed_at", ASCENDING)])

    async def page(self, job_id: str, *, status: BatchStatus | None = None, after: int = -1, limit: int) -> Page[Batch]:
        """A job's batches in order, after the ordinal `after`; of one status, if given."""
        wanted: Document = {"$ne": END} if status is None else {"$eq": status.value}
        query = {"job_id": job_id, "ordinal": {"$gt": after}, "status": wanted}
        return await read_page(self._batches, query, batch_of, order=("ordinal",), limit=limit, batch=_BATCH)

    async def job_ids(self, *, after: str, limit: int) -> list[str]:
        return await read_values(self._batches, "job_id", after=after, limit=limit)

    async def totals(self, job_ids: Sequence[str]) -> dict[str, Totals]:
        pipeline: list[Document] = [
            {"$match": {"job_id": {"$in": list(job_ids)}, "status": {"$ne": END}}},
            {
                "$group": {
                    "_id": "$job_id",
                    "batches": {"$sum": 1},
                    "settled": {"$sum": {"$cond": ["$settled", 1, 0]}},
                    "planned": {"$sum": "$size"},
                    **{count: {"$sum": f"$receipt.{count}"} for count in RECEIPT_COUNTS},
                }
            },
        ]
        groups = [group async for group in await self._at_one_moment.aggregate(pipeline)]
        return {group.pop("_id"): Totals(**group) for group in groups}

    async def counts(self, job_id: str) -> Counts:
        pipeline: list[Document] = [
            {"$match": {"job_id": job_id, "status": {"$ne": END}}},
            {
                "$group": {
                    "_id": None,
                    "planned": {"$sum": 1},
                    "settled": {"$sum": {"$cond": ["$settled", 1, 0]}},
                    "failed": {"$sum": {"$cond": [{"$eq": ["$status", BatchStatus.FAILED.value]}, 1, 0]}},
                }
            },
        ]
        groups = [group async for group in await self._at_one_moment.aggregate(pipeline)]
        return Counts(**{name: groups[0][name] for name in Counts.__struct_fields__}) if groups else Counts()

    async def has_failed(self, job_id: str) -> bool:
        return await self._batches.find_one({"failed_of": job_id}, {"_id": 1}) is not None

    async def outcomes(self, job_id: str) -> AsyncIterator[Settled]:
        query = {"job_id": job_id, "settled": True}
        shown = dict.fromkeys(("receipt", "began_at", "taken_at", "changed_at"), 1)
        with translate_errors():
            async for document in self._batches.find(query, shown):
                yield Settled(receipt_of(document["receipt"]), _beginning_of(document), document.get("changed_at"))

    async def read_settled(self, job_id: str) -> AsyncIterator[Batch]:
        with translate_errors():
            async for document in self._batches.find({"job_id": job_id, "settled": True}).sort("ordinal", ASCENDING):
                yield batch_of(document)

    async def read_changed(self, job_id: str, since: datetime) -> AsyncIterator[tuple[int, BatchCounts]]:
        """The counts of the job's batches changed since `since`, by ordinal, in any order."""
        query = {"job_id": job_id, "changed_at": {"$gte": since}}
        with translate_errors():
            async for document in self._batches.find(query, _COUNTED, batch_size=_MANY):
                yield document["ordinal"], _counts_of(document)

    async def read_from(self, job_id: str, ordinal: int) -> AsyncIterator[tuple[int, BatchCounts]]:
        """The counts of the job's batches from `ordinal` on, by ordinal, in order."""
        query = {"job_id": job_id, "ordinal": {"$gte": ordinal}}
        with translate_errors():
            async for document in self._batches.find(query, _COUNTED, batch_size=_MANY).sort("ordinal", ASCENDING):
                if document["status"] != END:
                    yield document["ordinal"], _counts_of(document)


def _counts_of(document: Document) -> BatchCounts:
    return BatchCounts(
        document["size"],
        document["settled"],
        receipt_of(document["receipt"]),
        _beginning_of(document),
        document.get("changed_at"),
    )


def _beginning_of(document: Document) -> datetime | None:
    return document.get("began_at") or document.get("taken_at")
