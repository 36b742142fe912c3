"""The moves that only batches of messages have (`shared.domain.messages.batches`)."""

from collections.abc import Mapping
from datetime import datetime

from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.jobs.batches import Batch, BatchStatus, Receipt, is_failure
from shared.domain.messages.batches import MESSAGE_TRANSITIONS
from shared.domain.transitions import source_of
from shared.store.documents import Aggregate, Document
from shared.store.jobs.batch_documents import batch_of, receipt_document


class MessageBatches(Aggregate):
    """The batches of messages in the `batches` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._batches = database["batches"]

    async def find_planned(self, job_id: str, *, since: int, now: datetime) -> Batch | None:
        """The job's first planned batch from the ordinal `since` on that may be sent at `now`."""
        query = _query_planned(job_id) | {"ordinal": {"$gte": since}, "not_before": {"$not": {"$gt": now}}}
        found = await self._batches.find_one(query, sort=[("ordinal", ASCENDING)])
        return None if found is None else batch_of(found)

    async def put_back(self, batch: Batch, *, not_before: datetime | None = None) -> Batch | None:
        """sending → planned, if its owner is unchanged; not sent before `not_before`."""
        change: Document = {"owner": ""} | ({} if not_before is None else {"not_before": not_before})
        unset = {"not_before": ""} if not_before is None else {}
        return await self._move(batch, BatchStatus.PLANNED, change, unset)

    async def bring_forward(self, job_id: str) -> None:
        """Remove the waiting times of the job's planned batches."""
        waiting = _query_planned(job_id) | {"not_before": {"$exists": True}}
        await self._batches.update_many(waiting, {"$unset": {"not_before": ""}})

    async def fit(self, batch: Batch, *, size: int, receipt: Receipt) -> Batch | None:
        """Store the number of recipients and the present receipt, if its owner is unchanged."""
        query = {"_id": batch.id, "owner": batch.owner, "attempts": batch.attempts}
        fields = {"size": size, "receipt": receipt_document(receipt)}
        change = {"$set": fields, "$currentDate": {"changed_at": True}}
        found = await self._batches.find_one_and_update(query, change, return_document=ReturnDocument.AFTER)
        return None if found is None else batch_of(found)

    async def settle(
        self, batch: Batch, *, to: BatchStatus, receipt: Receipt, size: int, tally: Mapping[str, int] | None = None
    ) -> Batch | None:
        """sending → settled, with `size` recipients, if its owner is unchanged. A `tally` counts entries that are not
        stored."""
        change: Document = {"receipt": receipt_document(receipt), "size": size, "settled": True, "owner": ""}
        change |= {"failed_of": batch.job_id} if is_failure(to) else {}
        change |= {f"tally.{name}": count for name, count in (tally or {}).items()}
        return await self._move(batch, to, change, {"not_before": ""})

    async def _move(self, batch: Batch, to: BatchStatus, fields: Document, unset: Document) -> Batch | None:
        source = source_of(MESSAGE_TRANSITIONS, BatchStatus.SENDING, to)
        query = {"_id": batch.id, "owner": batch.owner, "attempts": batch.attempts, "status": source.value}
        change: Document = {"$set": {"status": to.value} | fields, "$currentDate": {"changed_at": True}}
        change |= {"$unset": unset} if unset else {}
        found = await self._batches.find_one_and_update(query, change, return_document=ReturnDocument.AFTER)
        return None if found is None else batch_of(found)


def _query_planned(job_id: str) -> Document:
    return {"job_id": job_id, "status": BatchStatus.PLANNED.value}
