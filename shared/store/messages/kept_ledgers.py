"""The parts of the ledger that are kept of jobs that have ended, and for how long.

    personal_since   from the job's end on, until its messages are redacted as far as its last batch; `redacted_to` is
                     the first batch whose messages are not
    ledger_since     from the job's end on, as long as it has its batches and messages
    forgetting       these are being removed: nobody takes the job up again
    tally            what is counted of those that are removed

A batch goes in one transaction with its messages, with what callbacks have told of them, and with the sum of all that,
which the job keeps. So at any moment what is left and the job's tally add up, and a callback either counts before its
message goes or finds none.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from pymongo import ASCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.jobs.jobs import Job, split_key
from shared.domain.messages.ledger import add_tallies, batch_prefix
from shared.store.documents import Document, forget_some, translate_errors
from shared.store.jobs.job_documents import job_of, one_job
from shared.store.messages.sums import beginning_with, flatten_tally
from shared.store.transactions import run_transaction

_TRANSACTION_SECONDS = 10.0
_LOOKED_AT = 50
_WITHOUT = {"plan.templates": 0, "context": 0}


class KeptJob(Struct, frozen=True):
    """A job that has ended, since when, and how far its messages are redacted."""

    job: Job
    since: datetime
    redacted_to: int = 0
    forgetting: bool = False


class KeptLedgers:
    """Jobs of messages that have ended, in `jobs`, with what belongs to them in `batches`, `messages` and `tallies`.
    All raise `Unavailable`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._jobs = database["jobs"]
        self._batches = database["batches"]
        self._messages = database["messages"]
        self._tallies = database["tallies"]

    async def setup(self) -> None:
        """Make the indexes."""
        for field in ("personal_since", "ledger_since"):
            await self._jobs.create_index([(field, ASCENDING)], sparse=True)

    async def begin_keeping(self, job_key: str) -> None:
        """Note that the job ends now. The process that closes it does so next."""
        change = {"$currentDate": {"personal_since": True, "ledger_since": True}, "$set": {"redacted_to": 0}}
        with translate_errors():
            await self._jobs.update_one(one_job(job_key) | {"open": True}, change)

    async def find_unredacted(self, before: datetime, *, limit: int) -> list[KeptJob]:
        """Some jobs that ended before then and whose messages are not redacted, the earliest first."""
        return await self._find("personal_since", before, limit)

    async def note_redacted(self, kept: KeptJob, redacted_to: int) -> bool:
        """Note that the messages are redacted of all batches before this one; `False` where the job has been taken up
        again since it was read."""
        whole = redacted_to >= (kept.job.plan.end or 0)
        change: Document = {"$unset": {"personal_since": "", "redacted_to": ""}}
        query = one_job(kept.job.key) | {"open": False, "personal_since": kept.since}
        with translate_errors():
            noted = await self._jobs.update_one(query, change if whole else {"$max": {"redacted_to": redacted_to}})
        return noted.matched_count == 1

    async def find_old(self, before: datetime, *, limit: int) -> list[KeptJob]:
        """Some jobs that ended before then and have their batches or some of them, the earliest first."""
        return await self._find("ledger_since", before, limit)

    async def begin_forgetting(self, kept: KeptJob, *, duplicates: int) -> bool:
        """Note that the job's batches and messages are removed next; `False` where it has been taken up again since it
        was read."""
        tally = {"planned": 0, "duplicates": duplicates, "steps": 0, "counts": {}}
        change = {"$set": {"forgetting": True, "tally": tally}}
        query = one_job(kept.job.key) | {"open": False, "ledger_since": kept.since, "tally": {"$exists": False}}
        with translate_errors():
            return (await self._jobs.update_one(query, change)).matched_count == 1

    async def fold_some(self, job_key: str, *, rows: int) -> int:
        """Remove the first batches of a job that is being forgotten, with their messages, and count them in the job:
        one at least, and no more of them than have so many messages. Returns how many went."""
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
        """Note that nothing is left of them."""
        with translate_errors():
            await self._jobs.update_one(
                one_job(job_key) | {"forgetting": True},
                {"$unset": {"forgetting": "", "ledger_since": "", "personal_since": "", "redacted_to": ""}},
            )

    async def remove_some(self, incarnation: str, *, limit: int) -> bool:
        """Remove some messages of a job that is forgotten itself, and then what callbacks have told of them; `False`
        once nothing is left."""
        of_job = beginning_with(f"{incarnation}.")
        if await forget_some(self._messages, of_job, limit):
            return True
        return await forget_some(self._tallies, of_job, limit) > 0

    async def _find(self, field: str, before: datetime, limit: int) -> list[KeptJob]:
        query = {field: {"$lt": before}, "open": False}
        with translate_errors():
            found = self._jobs.find(query, _WITHOUT).sort(field, ASCENDING).limit(limit)
            return [_kept_job(document, document[field]) async for document in found]


def _kept_job(document: Document, since: datetime) -> KeptJob:
    job = job_of(document | {"context": "{}"})
    return KeptJob(job, since, document.get("redacted_to", 0), document.get("forgetting", False))


def _choose(batches: Sequence[Document], rows: int) -> list[Document]:
    """The first of these that have so many rows together, and one in any case. The end of the plan has none."""
    chosen: list[Document] = []
    for batch in batches:
        rows -= batch.get("size", 0)
        if chosen and rows < 0:
            break
        chosen.append(batch)
    return chosen


def _bounds(incarnation: str, batches: Sequence[Document]) -> dict[str, str]:
    """The ids of the entries of these consecutive batches, and of what is told of them."""
    first, last = batches[0]["ordinal"], batches[-1]["ordinal"]
    return {"$gte": batch_prefix(incarnation, first), "$lt": batch_prefix(incarnation, last + 1)}


def _increments(batches: Sequence[Document], heard: Sequence[dict[str, Any]]) -> dict[str, int]:
    tallies = [flatten_tally(document) for document in (*(batch.get("tally", {}) for batch in batches), *heard)]
    counts = {f"tally.counts.{name}": count for name, count in add_tallies(tallies).items()}
    planned = sum(batch.get("size", 0) for batch in batches)
    return counts | {"tally.planned": planned, "tally.duplicates": sum(map(_repeats_of, batches)), "tally.steps": 1}


def _repeats_of(batch: Document) -> int:
    """The rows of a table that repeat one before them. Those of a file's ranges are bits, counted in its plan."""
    repeated = (batch.get("range") or {}).get("repeated", ())
    return len(repeated) if isinstance(repeated, list) else 0
