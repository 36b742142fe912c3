"""Feedback of pushes, and the users that control groups hold out.

One transaction moves a partition's counted position and adds the counts to the jobs. Held-out users are stored
batch by batch until the job's file of them is written. A batch may be tried more than once, and its table may
change in between, so each take has a document of its own, written before the lane takes the batch. The batch names
the takes that count.
"""

from collections.abc import Mapping, Sequence

import pymongo
from msgspec.structs import replace
from pymongo import ASCENDING, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from shared.core.documents import Position
from shared.core.errors import Unavailable
from shared.drivers.mongo.documents import Aggregate, Document, forget_all, read_values
from shared.drivers.mongo.transactions import run_transaction
from shared.jobs.rules.batches import Batch
from shared.jobs.store_jobs import escape_key, unescape_key
from shared.push.rules.feedback import Key, admit_outcomes, by_job

# Together well under the grace period of a process that stores its last counts while the server is away.
_TRANSACTION_SECONDS = 10.0
_LOOK_SECONDS = 5.0
_MAX_OUTCOMES = 100


class Feedbacks(Aggregate):
    """The `feedback_positions` collection, one document for each partition, and the field `feedbacks` of jobs."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._positions = database["feedback_positions"]
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        """Make the collection: an older server cannot make one in a transaction. Every query is by `_id`."""
        await self._positions.update_one({"_id": ""}, {"$setOnInsert": {"position": 0}}, upsert=True)

    async def positions(self, partitions: Sequence[str]) -> dict[str, Position]:
        """The counted position of each partition; a partition without counts is missing."""
        found = self._positions.find({"_id": {"$in": list(partitions)}})
        return {document["_id"]: _position(document) async for document in found}

    async def flush(
        self,
        partition: str,
        start: Position,
        end: Position,
        counts: Mapping[Key, int],
        *,
        max_outcomes: int = _MAX_OUTCOMES,
    ) -> bool:
        """Move the partition's position from `start` to `end` and add the counts to their jobs, in one transaction.

        `False` if the position is not `start`: another process has counted these records, and nothing has changed.
        Unknown jobs are ignored. A job has at most `max_outcomes` different outcomes, and `other` for the rest. If
        `Unavailable` is raised, the counts may be stored: the next try, which is safe, shows that.
        """

        async def transaction(session: AsyncClientSession) -> bool:
            if not await self._move(partition, start, end, session):
                return False
            await self._add(by_job(counts), max_outcomes, session)
            return True

        try:
            return await run_transaction(self._database, transaction, seconds=_TRANSACTION_SECONDS)
        except DuplicateKeyError:
            return False  # another process stored the partition's first step
        except Unavailable:
            # Only this step, or the same one of another process, leads from `start` to `end`.
            with pymongo.timeout(_LOOK_SECONDS):
                if (await self.positions([partition])).get(partition) == end:
                    return True
            raise

    async def _move(self, partition: str, start: Position, end: Position, session: AsyncClientSession) -> bool:
        """Whether the position was `start`. A missing document is the very beginning."""
        if start == Position() and await self._positions.find_one({"_id": partition}, session=session) is None:
            await self._positions.insert_one({"_id": partition, **_fields(end)}, session=session)
            return True
        # A missing field equals null.
        stood = {"_id": partition, "position": start.offset, "log": start.log or None}
        moved = await self._positions.update_one(stood, {"$set": _fields(end)}, session=session)
        return moved.matched_count == 1

    async def _add(self, jobs: Mapping[str, Mapping[str, int]], most: int, session: AsyncClientSession) -> None:
        """The limit holds because the transaction reads the job's present outcomes."""
        cursor = self._jobs.find({"_id": {"$in": list(jobs)}}, {"feedbacks": 1}, session=session)
        present = sorted([document async for document in cursor], key=lambda document: str(document["_id"]))
        changes = [
            UpdateOne({"_id": document["_id"]}, {"$inc": _increments(document, jobs[document["_id"]], most)})
            for document in present
        ]
        if changes:
            await self._jobs.bulk_write(changes, ordered=True, session=session)


def _fields(position: Position) -> Document:
    log = {"log": position.log} if position.log else {}
    left = {"left": list(position.left)} if position.left else {}
    return {"position": position.offset} | log | left


def _position(document: Document) -> Position:
    return Position(document["position"], document.get("log", ""), tuple(document.get("left", ())))


def _increments(document: Document, new: Mapping[str, int], most: int) -> dict[str, int]:
    names = (unescape_key(key) for key in document.get("feedbacks", {}))
    return {f"feedbacks.{escape_key(outcome)}": count for outcome, count in admit_outcomes(names, new, most).items()}


class HeldOut(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._held_out = database["held_out"]

    async def setup(self) -> None:
        await self._held_out.create_index([("job_id", ASCENDING)])

    async def put(self, batch: Batch, users: Sequence[str], *, owner: str) -> None:
        """Store the users that this lane holds out, before it takes the batch."""
        key = _key(batch.id, replace(batch, owner=owner).take)
        await self._held_out.replace_one({"_id": key}, {"job_id": batch.job_id, "users": list(users)}, upsert=True)

    async def read(self, batch: Batch) -> list[str]:
        """The users held out by the takes that sent the batch."""
        keys = [_key(batch.id, take) for take in batch.holders]
        found = self._held_out.find({"_id": {"$in": keys}}, {"users": 1})
        return [user async for document in found for user in document["users"]]

    async def remove_of(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            await forget_all(self._held_out, {"job_id": job_id})

    async def job_ids(self, *, after: str, limit: int) -> list[str]:
        return await read_values(self._held_out, "job_id", after=after, limit=limit)


def _key(batch_id: str, take: str) -> str:
    return f"{batch_id}/{take}"
