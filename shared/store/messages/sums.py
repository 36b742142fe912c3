"""What the ledger counts of jobs: one aggregate at one moment, over their batches and over what callbacks have told.

Once a job's batches are removed, its document keeps what they counted (`tally`). What callbacks tell is counted apart
(`tallies`), and goes on being added.
"""

from collections.abc import Sequence

import msgspec
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from shared.domain.jobs.jobs import split_key
from shared.domain.messages.figures import MessageCounts, counted_states
from shared.domain.messages.ledger import add_tallies
from shared.store.documents import Document, json_text, translate_errors
from shared.store.jobs.batch_documents import END
from shared.store.jobs.job_documents import one_job
from shared.store.messages.ledger import beginning_with, flatten_tally

# Those of a file's ranges are bits, and are counted in its plan.
_REPEATS: Document = {"$cond": [{"$isArray": "$range.repeated"}, {"$size": "$range.repeated"}, 0]}


class MessageSums:
    """Reads `batches`, `tallies`, and the field `tally` of jobs. All raise `Unavailable`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]
        self._batches = database["batches"].with_options(read_concern=ReadConcern("snapshot"))

    async def setup(self) -> None:
        """Nothing to make: jobs and the ledger have made the indexes."""

    async def count(self, job_key: str) -> MessageCounts:
        """The messages of a job, all at one moment; without the duplicates of its file as long as its batches are
        there."""
        incarnation = split_key(job_key)[1]
        pipeline: list[Document] = [
            {"$match": {"job_id": job_key, "status": {"$ne": END}}},
            {"$project": {"_id": 0, "size": 1, "batch": "$tally", "repeats": _REPEATS}},
            _union("tallies", beginning_with(f"{incarnation}."), {"heard": "$$ROOT"}),
            _union("jobs", one_job(job_key) | {"tally": {"$exists": True}}, {"kept": "$tally"}),
        ]
        with translate_errors():
            found = await (await self._batches.aggregate(pipeline)).to_list()
        kept = next((_read_kept(document["kept"]) for document in found if "kept" in document), None)
        heard = [flatten_tally(document["heard"]) for document in found if "heard" in document]
        if kept is not None:  # the batches are being removed: some may be left
            return msgspec.structs.replace(kept, tally=add_tallies([kept.tally, *heard]))
        batches = [document for document in found if "size" in document]
        tallies = [flatten_tally(document["batch"]) for document in batches if "batch" in document]
        return MessageCounts(
            planned=sum(document["size"] for document in batches),
            duplicates=sum(document["repeats"] for document in batches),
            tally=add_tallies([*tallies, *heard]),
        )

    async def count_unsent(self, job_keys: Sequence[str]) -> int:
        """How many messages of these jobs nobody has called."""
        return sum((await self.count_unsent_of(job_keys)).values())

    async def count_unsent_of(self, job_keys: Sequence[str]) -> dict[str, int]:
        """How many messages of each of these jobs nobody has called. Callbacks only move what was called."""
        if not job_keys:
            return {}
        states = [{"$ifNull": [f"$tally.{state}", 0]} for state in counted_states()]
        pipeline: list[Document] = [
            {"$match": {"job_id": {"$in": list(job_keys)}, "status": {"$ne": END}}},
            {"$group": {"_id": "$job_id", "unsent": {"$sum": {"$subtract": ["$size", {"$add": states}]}}}},
        ]
        with translate_errors():
            found = await (await self._batches.aggregate(pipeline)).to_list()
        return {document["_id"]: max(document["unsent"], 0) for document in found}

    async def keep(self, job_key: str, *, duplicates: int) -> None:
        """Write into the job what its batches count, which are removed next. What is kept already stays."""
        query = one_job(job_key) | {"tally": {"$exists": False}}
        with translate_errors():
            if await self._jobs.find_one(query, {"_id": 1}) is None:
                return
            pipeline: list[Document] = [
                {"$match": {"job_id": job_key, "status": {"$ne": END}}},
                {"$project": {"_id": 0, "size": 1, "tally": 1, "repeats": _REPEATS}},
            ]
            found = await (await self._batches.aggregate(pipeline)).to_list()
            tally = add_tallies(flatten_tally(document.get("tally", {})) for document in found)
            planned = sum(document["size"] for document in found)
            duplicates += sum(document["repeats"] for document in found)
            kept = json_text(MessageCounts(planned=planned, duplicates=duplicates, tally=tally))
            await self._jobs.update_one(query, {"$set": {"tally": kept}})


def _read_kept(text: str) -> MessageCounts:
    return msgspec.json.decode(text, type=MessageCounts)


def _union(collection: str, query: Document, shown: Document) -> Document:
    return {"$unionWith": {"coll": collection, "pipeline": [{"$match": query}, {"$project": {"_id": 0} | shown}]}}
