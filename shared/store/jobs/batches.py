"""Batches: one document each, insert-only and in order, and the end of the plan as the entry after the last of them.

The end is an entry with the next ordinal, so of two planners that disagree one meets a duplicate key, whether it
wants to add a batch or the end.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct
from pymongo import ASCENDING, DESCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError

from shared.domain.jobs.batches import Batch, BatchPart, BatchStatus, Receipt, batch_id, is_failure, is_unfed, smaller
from shared.domain.jobs.jobs import Counts, Totals
from shared.domain.jobs.progress import Settled
from shared.store.documents import Codec, Document, is_duplicate, translated

_codec = Codec(Batch, derived=("slot", "settled"))
_END = "end"


class PlanEnd(Struct, frozen=True):
    """The entry after the last batch: the plan has `ordinal` batches."""

    ordinal: int


class Head(NamedTuple):
    """A chain's lowest unsettled batch, and whether it waits to be fed."""

    ordinal: int
    planned: bool


class Batches:
    """The `batches` collection. Reasons and locales of receipts are lists of pairs there: their keys are data."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._batches = database["batches"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._batches.create_index([("job_id", ASCENDING), ("ordinal", ASCENDING)], unique=True)
        await self._batches.create_index([("failed_of", ASCENDING)], sparse=True)
        # Without the status: a batch that moves on while a server scans for heads must not move within the index.
        await self._batches.create_index(
            [("job_id", ASCENDING), ("settled", ASCENDING), ("slot", ASCENDING), ("ordinal", ASCENDING)]
        )

    async def add_page(self, batches: Sequence[Batch]) -> bool:
        """Insert consecutive batches in order; `False` when another planner was there first: read `last` and go on."""
        return await self._insert([_document(batch) for batch in batches])

    async def add_end(self, job_id: str, ordinal: int) -> bool:
        """Insert the end of the plan; `False` when that entry is taken."""
        entry = {"_id": batch_id(job_id, ordinal), "job_id": job_id, "ordinal": ordinal, "status": _END}
        return await self._insert([entry])

    async def get(self, job_id: str, ordinal: int) -> Batch | None:
        """The batch, if the plan has one there."""
        with translated():
            document = await self._batches.find_one({"_id": batch_id(job_id, ordinal), "status": {"$ne": _END}})
        return None if document is None else _value(document)

    async def last(self, job_id: str) -> Batch | PlanEnd | None:
        """The last entry of the plan, `None` while there is none."""
        with translated():
            document = await self._batches.find_one({"job_id": job_id}, sort=[("ordinal", DESCENDING)])
        if document is None:
            return None
        return PlanEnd(document["ordinal"]) if document["status"] == _END else _value(document)

    async def heads(self, job_id: str) -> list[Head]:
        """The lowest unsettled batch of every chain that has one, in order."""
        pipeline: list[Document] = [
            {"$match": {"job_id": job_id, "settled": False}},
            {"$group": {"_id": "$slot", "lowest": {"$min": {"ordinal": "$ordinal", "status": "$status"}}}},
        ]
        with translated():
            lowest = [group["lowest"] async for group in await self._batches.aggregate(pipeline)]
        return sorted(Head(head["ordinal"], is_unfed(BatchStatus(head["status"]))) for head in lowest)

    async def find_settled(self, job_id: str, ordinals: Sequence[int]) -> set[int]:
        """Which of these batches are settled."""
        query = {"_id": {"$in": [batch_id(job_id, ordinal) for ordinal in ordinals]}, "settled": True}
        with translated():
            return {document["ordinal"] async for document in self._batches.find(query, {"ordinal": 1})}

    async def has_unsettled(self, job_id: str) -> bool:
        """Whether a batch of the job is still to be settled."""
        with translated():
            return await self._batches.find_one({"job_id": job_id, "settled": False}, {"_id": 1}) is not None

    async def find_unchanged_since(self, job_id: str, status: BatchStatus, moment: datetime) -> list[Batch]:
        """The batches that have stood in an unsettled status since before the moment (the database's time)."""
        query = {"job_id": job_id, "settled": False, "status": status.value}
        with translated():
            found = [_value(document) async for document in self._batches.find(query)]
        return [batch for batch in found if batch.changed_at is None or batch.changed_at < moment]

    async def queue(self, job_id: str, ordinal: int) -> Batch | None:
        """planned → queued with the next turn; `None` when it is not planned, or not there."""
        query = {"_id": batch_id(job_id, ordinal), "status": BatchStatus.PLANNED.value}
        return await self._move(query, {"status": BatchStatus.QUEUED.value}, raise_turn=True)

    async def requeue(self, batch: Batch) -> Batch | None:
        """The same status with the next turn: its message is void from now on, and a new one is due."""
        query = {"_id": batch.id, "status": batch.status.value, "turn": batch.turn, "owner": batch.owner}
        return await self._move(query, {"status": batch.status.value}, raise_turn=True)

    async def put_back(self, batch: Batch) -> Batch | None:
        """queued → planned, if it still has this turn."""
        return await self._move(_queued(batch), {"status": BatchStatus.PLANNED.value})

    async def take(self, batch: Batch, *, owner: str) -> Batch | None:
        """queued → sending, owned by a lane; `None` when the turn has passed or another lane was first."""
        change = {"status": BatchStatus.SENDING.value, "owner": owner, "attempts": batch.attempts + 1}
        return await self._move(_queued(batch), change, dated=("taken_at", "changed_at"))

    async def disown(self, batch: Batch) -> Batch | None:
        """sending → queued for a batch whose fenced owner sent nothing; the turn stays."""
        fruitless = {
            "fruitless": batch.fruitless + 1,
            "halvings": smaller(batch),
        }
        return await self._move(_owned(batch), {"status": BatchStatus.QUEUED.value, "owner": ""} | fruitless)

    async def advance(self, batch: Batch, part: BatchPart, *, halvings: int) -> Batch | None:
        """sending → queued for a batch of which this part is out; the turn stays."""
        change = {
            "status": BatchStatus.QUEUED.value,
            "owner": "",
            "parts": part.number,
            "next": part.next,
            "receipt": _receipt(part.receipt),
            "size": max(batch.size, part.receipt.recipients),
            "fruitless": 0,
            "halvings": halvings,
        }
        return await self._move(_owned(batch), change | _holders(batch, part.receipt))

    async def settle(self, batch: Batch, *, to: BatchStatus, receipt: Receipt) -> Batch | None:
        """sending → sent or failed, if its owner is still the same."""
        return await self._move(_owned(batch), _outcome(batch.job_id, to, receipt) | _holders(batch, receipt))

    async def fail(self, batch: Batch, *, receipt: Receipt) -> Batch | None:
        """queued → failed, for a batch that cannot be sent, or not to its end."""
        return await self._move(_queued(batch), _outcome(batch.job_id, BatchStatus.FAILED, receipt))

    async def drop(self, batch: Batch) -> Batch | None:
        """queued → dropped, if it still has this turn."""
        return await self._move(_queued(batch), {"status": BatchStatus.DROPPED.value, "settled": True})

    async def drop_unsent(self, job_id: str) -> int:
        """Drop every batch of a stopped job that no lane owns; how many."""
        unsent = {"$in": [BatchStatus.PLANNED.value, BatchStatus.QUEUED.value]}
        with translated():
            result = await self._batches.update_many(
                {"job_id": job_id, "settled": False, "status": unsent},
                {
                    "$set": {"status": BatchStatus.DROPPED.value, "settled": True},
                    "$currentDate": {"changed_at": True},
                },
            )
        return result.modified_count

    async def totals(self, job_ids: Sequence[str]) -> dict[str, Totals]:
        """The sums over the batches of these jobs as they stand now, by job."""
        pipeline: list[Document] = [
            {"$match": {"job_id": {"$in": list(job_ids)}, "status": {"$ne": _END}}},
            {
                "$group": {
                    "_id": "$job_id",
                    "batches": {"$sum": 1},
                    "settled": {"$sum": {"$cond": ["$settled", 1, 0]}},
                    "planned": {"$sum": "$size"},
                    **{count: {"$sum": f"$receipt.{count}"} for count in _COUNTS},
                }
            },
        ]
        with translated():
            groups = [group async for group in await self._batches.aggregate(pipeline)]
        return {group.pop("_id"): Totals(**group) for group in groups}

    async def counts(self, job_id: str) -> Counts:
        """How many there are by now, settled and failed ones."""
        pipeline: list[Document] = [
            {"$match": {"job_id": job_id, "status": {"$ne": _END}}},
            {
                "$group": {
                    "_id": None,
                    "planned": {"$sum": 1},
                    "settled": {"$sum": {"$cond": ["$settled", 1, 0]}},
                    "failed": {"$sum": {"$cond": [{"$eq": ["$status", BatchStatus.FAILED.value]}, 1, 0]}},
                }
            },
        ]
        with translated():
            groups = [group async for group in await self._batches.aggregate(pipeline)]
        return Counts(**{name: groups[0][name] for name in Counts.__struct_fields__}) if groups else Counts()

    async def has_failed(self, job_id: str) -> bool:
        """Whether a batch of the job has failed."""
        with translated():
            return await self._batches.find_one({"failed_of": job_id}, {"_id": 1}) is not None

    async def outcomes(self, job_id: str) -> AsyncIterator[Settled]:
        """What became of the job's settled batches, one at a time, in any order."""
        query, shown = {"job_id": job_id, "settled": True}, {"receipt": 1, "taken_at": 1, "changed_at": 1}
        with translated():
            async for document in self._batches.find(query, shown):
                times = document.get("taken_at"), document.get("changed_at")
                yield Settled(_read_receipt(document["receipt"]), *times)

    async def read_settled(self, job_id: str) -> AsyncIterator[Batch]:
        """The job's settled batches, in their order."""
        with translated():
            async for document in self._batches.find({"job_id": job_id, "settled": True}).sort("ordinal", ASCENDING):
                yield _value(document)

    async def receipts(self, job_id: str) -> AsyncIterator[Receipt]:
        """The receipts of the job's settled batches, one at a time."""
        with translated():
            async for document in self._batches.find({"job_id": job_id, "settled": True}, {"receipt": 1}):
                yield _read_receipt(document["receipt"])

    async def remove_of(self, job_ids: Sequence[str]) -> None:
        """Forget the batches of these jobs."""
        with translated():
            await self._batches.delete_many({"job_id": {"$in": list(job_ids)}})

    async def _insert(self, documents: list[Document]) -> bool:
        try:
            with translated():
                await self._batches.insert_many(documents, ordered=True)
        except BulkWriteError as error:
            if is_duplicate(error):
                return False
            raise
        return True

    async def _move(
        self,
        query: Document,
        fields: Document,
        *,
        raise_turn: bool = False,
        dated: tuple[str, ...] = ("changed_at",),
    ) -> Batch | None:
        change: Document = {"$set": fields, "$currentDate": dict.fromkeys(dated, True)}
        if raise_turn:
            change["$inc"] = {"turn": 1}
        with translated():
            document = await self._batches.find_one_and_update(query, change, return_document=ReturnDocument.AFTER)
        return None if document is None else _value(document)


_COUNTS = ("sent", "failed", "skipped", "held_out", "unknown")


def _queued(batch: Batch) -> Document:
    """As it was read: after another take, what was read of its recipients may be out."""
    queued = {"_id": batch.id, "status": BatchStatus.QUEUED.value, "turn": batch.turn}
    return queued | {"attempts": batch.attempts}


def _owned(batch: Batch) -> Document:
    """Of this very take: a lane may take the parts of one batch one after the other."""
    owned = {"_id": batch.id, "status": BatchStatus.SENDING.value, "owner": batch.owner}
    return owned | {"attempts": batch.attempts}


def _outcome(job_id: str, status: BatchStatus, receipt: Receipt) -> Document:
    """`failed_of` is there in failed batches alone, which are few: a sparse index finds them."""
    failed = {"failed_of": job_id} if is_failure(status) else {}
    outcome = {"status": status.value, "receipt": _receipt(receipt), "size": receipt.recipients, "settled": True}
    return outcome | failed


def _holders(batch: Batch, receipt: Receipt) -> Document:
    """The takes whose parts held users out, where this one did."""
    if receipt.held_out == batch.receipt.held_out:
        return {}
    return {"holders": [*batch.holders, batch.take]}


def _document(batch: Batch) -> Document:
    return _codec.document(batch) | {"receipt": _receipt(batch.receipt)}


def _value(document: Document) -> Batch:
    return _codec.value(document | {"receipt": _read_receipt(document["receipt"])})


def _receipt(receipt: Receipt) -> Document:
    counts: Document = {count: getattr(receipt, count) for count in _COUNTS}
    return counts | {"reasons": list(receipt.reasons.items()), "locales": list(receipt.locales.items())}


def _read_receipt(document: Any) -> Receipt:
    counts = {count: document.get(count, 0) for count in _COUNTS}
    return Receipt(**counts, reasons=dict(document["reasons"]), locales=dict(document["locales"]))
