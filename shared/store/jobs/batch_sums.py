"""The present sums of a job's batches."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from shared.domain.jobs.batches import Batch, BatchStatus
from shared.domain.jobs.breaking import Counts
from shared.domain.jobs.progress import Settled
from shared.domain.jobs.sums import BatchCounts
from shared.domain.jobs.totals import Totals
from shared.store.documents import Aggregate, Document, Page, read_page, read_values, translate_errors
from shared.store.jobs.batch_documents import END, RECEIPT_COUNTS, batch_of, receipt_of

_BATCH = 100  # with their lists of devices, or forty reasons and locales
_MANY = 1_000  # without lists; a larger read would block the event loop
_COUNTED = dict.fromkeys(
    ("ordinal", "status", "size", "settled", "receipt", "began_at", "taken_at", "changed_at"), 1
) | {"_id": 0}


class BatchSums(Aggregate):
    """Reads the `batches` collection."""

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
        """The present sums over the batches of these jobs, by job."""
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
        """The outcomes of the job's settled batches, in any order."""
        query = {"job_id": job_id, "settled": True}
        shown = dict.fromkeys(("receipt", "began_at", "taken_at", "changed_at"), 1)
        with translate_errors():
            async for document in self._batches.find(query, shown):
                yield Settled(receipt_of(document["receipt"]), _beginning_of(document), document.get("changed_at"))

    async def read_settled(self, job_id: str) -> AsyncIterator[Batch]:
        """The job's settled batches, in order."""
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
