"""The counts of a job's messages in the ledger, at one moment.

Batches have counts of their own. Reports of callbacks are counted separately (`tallies`), and the counts of removed
batches are in their job (`tally`): each step of a removal moves counts there in one transaction, and raises `steps`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from shared.domain.jobs.jobs import split_key
from shared.domain.messages.figures import MessageCounts, counted_states
from shared.domain.messages.ledger import add_tallies
from shared.store.documents import Aggregate, Document
from shared.store.jobs.job_documents import one_job

_NOTHING_KEPT: Document = {"planned": 0, "duplicates": 0, "steps": 0, "counts": {}}
_COUNTED: Document = {
    "_id": 0,
    "size": 1,
    "tally": 1,
    # Repeats in a file's range are bits: the plan counts them.
    "repeats": {"$cond": [{"$isArray": "$range.repeated"}, {"$size": "$range.repeated"}, 0]},
}


class MessageSums(Aggregate):
    """Reads `batches`, `tallies`, and the field `tally` of jobs."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]
        self._batches = database["batches"].with_options(read_concern=ReadConcern("snapshot"))
        self._tallies = database["tallies"]

    async def count(self, job_key: str) -> MessageCounts:
        """The messages of a job at one moment; without its duplicates while it has its batches. A job that is being
        deleted has no messages."""
        while True:
            before, found, after = await self._read(job_key)
            if after and after.get("removing"):
                return MessageCounts()
            # Some servers have no snapshot of several collections: if the two reads of the job differ, counts have
            # moved.
            if _steps_of(before) == _steps_of(after):
                return _add_up(found, after or {})

    async def _read(self, job_key: str) -> tuple[Document | None, list[Document], Document | None]:
        """The counted documents between two reads of the job; `None` for a deleted job."""
        look = {"_id": 0, "tally": 1, "round": 1, "removing": 1}
        heard = beginning_with(f"{split_key(job_key)[1]}.")
        async with self._jobs.database.client.start_session(snapshot=True) as session:
            before = await self._jobs.find_one(one_job(job_key), look, session=session)
            # Before the batches: a callback only moves a message that its batch has counted.
            told = await self._tallies.find(heard, session=session).to_list()
            counted = [{"$match": {"job_id": job_key}}, {"$project": _COUNTED}]
            batches = await (await self._batches.aggregate(counted, session=session)).to_list()
            after = await self._jobs.find_one(one_job(job_key), look, session=session)
        return before, [*batches, *({"tally": tally} for tally in told)], after

    async def count_unsent(self, job_keys: Sequence[str]) -> int:
        return sum((await self.count_unsent_of(job_keys)).values())

    async def count_unsent_of(self, job_keys: Sequence[str]) -> dict[str, int]:
        """The number of uncalled messages of each job. Callbacks only move called ones."""
        if not job_keys:
            return {}
        states = [{"$ifNull": [f"$tally.{state}", 0]} for state in counted_states()]
        pipeline: list[Document] = [
            {"$match": {"job_id": {"$in": list(job_keys)}}},
            {"$group": {"_id": "$job_id", "unsent": {"$sum": {"$subtract": ["$size", {"$add": states}]}}}},
        ]
        found = await (await self._batches.aggregate(pipeline)).to_list()
        return {document["_id"]: max(document["unsent"], 0) for document in found}


def _steps_of(look: Document | None) -> tuple[int, int] | None:
    # A deletion takes no steps. It deletes the job after its batches.
    return None if look is None else (look.get("tally", _NOTHING_KEPT)["steps"], look.get("round", 0))


def _add_up(found: Sequence[Document], look: Document) -> MessageCounts:
    kept: Document = look.get("tally", _NOTHING_KEPT)
    return MessageCounts(
        planned=kept["planned"] + sum(document.get("size", 0) for document in found),
        duplicates=kept["duplicates"] + sum(document.get("repeats", 0) for document in found),
        tally=add_tallies(map(flatten_tally, [kept["counts"], *(each.get("tally", {}) for each in found)])),
        round=look.get("round", 0),
    )


def beginning_with(prefix: str) -> Document:
    """The query for ids with this prefix, as one range; `prefix` ends with a dot, which the slash follows in ASCII."""
    return {"_id": {"$gt": prefix, "$lt": f"{prefix[:-1]}/"}}


def flatten_tally(tally: Mapping[str, Any], path: str = "") -> dict[str, int]:
    """The counts of a stored tally, by their full names."""
    counts: dict[str, int] = {}
    for name, value in tally.items():
        if isinstance(value, dict):
            counts |= flatten_tally(value, f"{path}{name}.")
        elif name != "_id":
            counts[f"{path}{name}"] = value
    return counts
