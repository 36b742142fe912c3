"""What the ledger counts of jobs: one aggregate at one moment, over their batches and over what callbacks have told.

What callbacks tell is counted apart (`tallies`). What was counted of batches that are removed stands in their job
(`tally`). Each of the `steps` of their removal moves counts from the ones to the other in one transaction.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from shared.domain.jobs.jobs import split_key
from shared.domain.messages.figures import MessageCounts, counted_states
from shared.domain.messages.ledger import add_tallies
from shared.store.documents import Document, translate_errors
from shared.store.jobs.batch_documents import END
from shared.store.jobs.job_documents import one_job

_NOTHING_KEPT: Document = {"planned": 0, "duplicates": 0, "steps": 0, "counts": {}}
_NO_LOOK: Document = {"kept": _NOTHING_KEPT, "round": 0}

# Those of a file's ranges are bits, and are counted in its plan.
_REPEATS: Document = {"$cond": [{"$isArray": "$range.repeated"}, {"$size": "$range.repeated"}, 0]}


class MessageSums:
    """Reads `batches`, `tallies`, and the field `tally` of jobs. All raise `Unavailable`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._batches = database["batches"].with_options(read_concern=ReadConcern("snapshot"))
        self._jobs = database["jobs"].with_options(read_concern=ReadConcern("snapshot"))

    async def setup(self) -> None:
        """Nothing to make: jobs and the ledger have made the indexes."""

    async def count(self, job_key: str) -> MessageCounts:
        """The messages of a job, all at one moment; without its duplicates as long as it has its batches."""
        while True:
            found = await self._read(job_key)
            looks = [document for document in found if "kept" in document]
            # Not every server reads several collections at one moment. Its first and its last look tell.
            if len({(look["kept"]["steps"], look["round"]) for look in looks}) <= 1:
                return _add_up(found, looks[-1] if looks else _NO_LOOK)

    async def _read(self, job_key: str) -> list[Document]:
        """What counts, between two looks at what the job keeps."""
        look: Document = {
            "kept": {"$ifNull": ["$tally", {"$literal": _NOTHING_KEPT}]},
            "round": {"$ifNull": ["$round", {"$literal": 0}]},
        }
        batches = {"job_id": job_key, "status": {"$ne": END}}
        heard = beginning_with(f"{split_key(job_key)[1]}.")
        pipeline: list[Document] = [
            {"$match": one_job(job_key)},
            {"$project": {"_id": 0} | look},
            _union("batches", batches, {"size": 1, "batch": "$tally", "repeats": _REPEATS}),
            _union("tallies", heard, {"heard": "$$ROOT"}),
            _union("jobs", one_job(job_key), look),
        ]
        with translate_errors():
            return await (await self._jobs.aggregate(pipeline)).to_list()

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


def _add_up(found: Sequence[Document], look: Document) -> MessageCounts:
    kept: Document = look["kept"]
    tallies = [document[part] for document in found for part in ("batch", "heard") if part in document]
    return MessageCounts(
        planned=kept["planned"] + sum(document.get("size", 0) for document in found),
        duplicates=kept["duplicates"] + sum(document.get("repeats", 0) for document in found),
        tally=add_tallies(map(flatten_tally, [kept["counts"], *tallies])),
        round=look["round"],
    )


def _union(collection: str, query: Document, shown: Document) -> Document:
    return {"$unionWith": {"coll": collection, "pipeline": [{"$match": query}, {"$project": {"_id": 0} | shown}]}}


def beginning_with(prefix: str) -> Document:
    """The query for ids that begin so, as one range; `prefix` ends with a dot, which the slash follows in ASCII."""
    return {"_id": {"$gt": prefix, "$lt": f"{prefix[:-1]}/"}}


def flatten_tally(tally: Mapping[str, Any], path: str = "") -> dict[str, int]:
    """The counts of a tally as it is stored, by their whole names."""
    counts: dict[str, int] = {}
    for name, value in tally.items():
        if isinstance(value, dict):
            counts |= flatten_tally(value, f"{path}{name}.")
        elif name != "_id":
            counts[f"{path}{name}"] = value
    return counts
