"""The kept ledger of ended jobs, and its fields in a job.

    personal_since   from the job's end until its messages are redacted; `redacted_to` is the first batch whose
                     messages are not
    ledger_since     from the job's end until its batches and messages are removed
    forgetting       batches and messages are being removed: the job cannot be reopened
    tally            the counts of removed batches

One transaction removes a batch with its messages and callback counts, and adds its counts to the job. So the
remaining counts and the job's tally always add up, and a callback either counts before its message goes or finds
none.

Redacted entries lose their recipients, and count as before. Each step of a redaction is one repeatable update of
several entries. It raises the `v` of each: the next write of an entry that was read before is refused, and a new
read finds it redacted (`shared.messages.rules.ledger`).
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from pymongo import ASCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.drivers.mongo.documents import Aggregate, Document, forget_some
from shared.drivers.mongo.transactions import run_transaction
from shared.jobs.rules.jobs import Job, split_key
from shared.jobs.store_jobs import job_of, one_job
from shared.messages.rules.ledger import add_tallies, batch_prefix
from shared.messages.store_ledger import beginning_with, flatten_tally

_TRANSACTION_SECONDS = 10.0
_LOOKED_AT = 50
_WITHOUT = {"plan.templates": 0, "context": 0}


class KeptJob(Struct, frozen=True):
    """An ended job, the time of its end, and its first batch that is not redacted."""

    job: Job
    since: datetime
    redacted_to: int = 0
    forgetting: bool = False


class KeptLedgers(Aggregate):
    """Ended jobs of messages in `jobs`, with their `batches`, `messages` and `tallies`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._jobs = database["jobs"]
        self._batches = database["batches"]
        self._messages = database["messages"]
        self._tallies = database["tallies"]

    async def setup(self) -> None:
        for field in ("personal_since", "ledger_since"):
            await self._jobs.create_index([(field, ASCENDING)], sparse=True)

    async def begin_keeping(self, job_key: str) -> None:
        """Record the job's end. The process closes it next."""
        change = {"$currentDate": {"personal_since": True, "ledger_since": True}, "$set": {"redacted_to": 0}}
        await self._jobs.update_one(one_job(job_key) | {"open": True}, change)

    async def find_unredacted(self, before: datetime, *, limit: int) -> list[KeptJob]:
        return await self._find("personal_since", before, limit)

    async def note_redacted(self, kept: KeptJob, redacted_to: int) -> bool:
        """Record that all batches before `redacted_to` are redacted; `False` if the job was reopened since it was
        read."""
        whole = redacted_to >= (kept.job.plan.end or 0)
        change: Document = {"$unset": {"personal_since": "", "redacted_to": ""}}
        query = one_job(kept.job.key) | {"open": False, "personal_since": kept.since}
        noted = await self._jobs.update_one(query, change if whole else {"$max": {"redacted_to": redacted_to}})
        return noted.matched_count == 1

    async def find_old(self, before: datetime, *, limit: int) -> list[KeptJob]:
        return await self._find("ledger_since", before, limit)

    async def begin_forgetting(self, kept: KeptJob, *, duplicates: int) -> bool:
        """Mark the job's batches and messages for removal; `False` if it was reopened since it was read."""
        tally = {"planned": 0, "duplicates": duplicates, "steps": 0, "counts": {}}
        change = {"$set": {"forgetting": True, "tally": tally}}
        query = one_job(kept.job.key) | {"open": False, "ledger_since": kept.since, "tally": {"$exists": False}}
        return (await self._jobs.update_one(query, change)).matched_count == 1

    async def fold_some(self, job_key: str, *, rows: int) -> int:
        """Remove the first batches of a marked job with their messages, and add their counts to the job: at least one
        batch, and no more than have `rows` messages. Returns the number of batches."""
        incarnation = split_key(job_key)[1]

        async def transact(session: AsyncClientSession) -> int:
            first = self._batches.find({"job_id": job_key}, session=session).sort("ordinal", ASCENDING)
            batches = _choose(await first.limit(_LOOKED_AT).to_list(), rows)
            if not batches:
                return 0
            bounds = _bounds(incarnation, batches)
            heard = await self._tallies.find({"_id": bounds}, session=session).to_list()
            await self._tallies.delete_many({"_id": bounds}, session=session)
            await self._messages.delete_many({"_id": bounds}, session=session)
            await self._batches.delete_many({"_id": {"$in": [batch["_id"] for batch in batches]}}, session=session)
            await self._jobs.update_one(one_job(job_key), {"$inc": _increments(batches, heard)}, session=session)
            return len(batches)

        return await run_transaction(self._database, transact, seconds=_TRANSACTION_SECONDS)

    async def end_forgetting(self, job_key: str) -> None:
        await self._jobs.update_one(
            one_job(job_key) | {"forgetting": True},
            {"$unset": {"forgetting": "", "ledger_since": "", "personal_since": "", "redacted_to": ""}},
        )

    async def remove_some(self, incarnation: str, *, limit: int) -> bool:
        """Remove up to `limit` messages of a deleted job, and after them its callback counts; `False` if nothing is
        left."""
        of_job = beginning_with(f"{incarnation}.")
        if await forget_some(self._messages, of_job, limit):
            return True
        return await forget_some(self._tallies, of_job, limit) > 0

    async def _find(self, field: str, before: datetime, limit: int) -> list[KeptJob]:
        query = {field: {"$lt": before}, "open": False}
        found = self._jobs.find(query, _WITHOUT).sort(field, ASCENDING).limit(limit)
        return [_kept_job(document, document[field]) async for document in found]


def _kept_job(document: Document, since: datetime) -> KeptJob:
    job = job_of(document | {"context": "{}"})
    return KeptJob(job, since, document.get("redacted_to", 0), document.get("forgetting", False))


def _choose(batches: Sequence[Document], rows: int) -> list[Document]:
    """The first batches with at most `rows` rows together, but at least one. The end of the plan has none."""
    chosen: list[Document] = []
    for batch in batches:
        rows -= batch.get("size", 0)
        if chosen and rows < 0:
            break
        chosen.append(batch)
    return chosen


def _bounds(incarnation: str, batches: Sequence[Document]) -> dict[str, str]:
    """The range of ids of entries and tallies of these consecutive batches."""
    first, last = batches[0]["ordinal"], batches[-1]["ordinal"]
    return {"$gte": batch_prefix(incarnation, first), "$lt": batch_prefix(incarnation, last + 1)}


def _increments(batches: Sequence[Document], heard: Sequence[dict[str, Any]]) -> dict[str, int]:
    tallies = [flatten_tally(document) for document in (*(batch.get("tally", {}) for batch in batches), *heard)]
    counts = {f"tally.counts.{name}": count for name, count in add_tallies(tallies).items()}
    planned = sum(batch.get("size", 0) for batch in batches)
    return counts | {"tally.planned": planned, "tally.duplicates": sum(map(_repeats_of, batches)), "tally.steps": 1}


def _repeats_of(batch: Document) -> int:
    """The rows of a table that repeat an earlier one. Repeats in a file's ranges are bits, counted in its plan."""
    repeated = (batch.get("range") or {}).get("repeated", ())
    return len(repeated) if isinstance(repeated, list) else 0


_EARLIER = {
    "$map": {"input": "$earlier", "as": "attempt", "in": {"$mergeObjects": ["$$attempt", {"detail": ""}]}},
}
_REDACT: list[Document] = [
    {
        "$set": {
            "redacted_at": {"$ifNull": ["$redacted_at", "$$NOW"]},
            "v": {"$add": [{"$ifNull": ["$v", 0]}, 1]},
            "earlier": {"$cond": [{"$isArray": "$earlier"}, _EARLIER, "$$REMOVE"]},
        }
    },
    {"$unset": ["to", "detail", "personal_since"]},
]


class Redaction(Aggregate):
    """Redacts entries of the `messages` collection.

    Entries of single messages have `personal_since`, from their end until they are redacted, and `ledger_since`, from
    their end on. Entries of jobs have neither: the job has these fields.
    """

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._messages = database["messages"]

    async def setup(self) -> None:
        await self._messages.create_index([("personal_since", ASCENDING)], sparse=True)
        await self._messages.create_index([("ledger_since", ASCENDING)], sparse=True)

    async def redact_batches(self, incarnation: str, first: int, end: int) -> int:
        """Redact the entries of a job's batches from the ordinal `first` up to, not including, `end`; returns the
        number."""
        bounds = {"$gt": batch_prefix(incarnation, first), "$lt": batch_prefix(incarnation, end)}
        return (await self._messages.update_many({"_id": bounds}, _REDACT)).matched_count

    async def redact_recipient(self, app_id: str, addresses: Collection[str], *, limit: int) -> int:
        """Redact up to `limit` of an app's messages to one of these addresses; returns the number. A pending message
        keeps its recipient."""
        query: Document = {"app_id": app_id, "to": {"$in": sorted(addresses)}, "pending": None}
        return await self._redact_some(query, limit)

    async def redact_singles(self, before: datetime, *, limit: int) -> int:
        return await self._redact_some({"personal_since": {"$lt": before}}, limit)

    async def forget_singles(self, before: datetime, *, limit: int) -> int:
        return await forget_some(self._messages, {"ledger_since": {"$lt": before}}, limit)

    async def forget_some_of(self, app_id: str, *, limit: int) -> int:
        return await forget_some(self._messages, {"app_id": app_id}, limit)

    async def _redact_some(self, query: Document, limit: int) -> int:
        found = await self._messages.find(query, {"_id": 1}).limit(limit).to_list()
        if found:
            chosen = {"_id": {"$in": [document["_id"] for document in found]}}
            await self._messages.update_many(chosen, _REDACT)
        return len(found)
