"""The ledger of messages: an entry for each message, and tallies that are exact at any moment.

Entries and tallies change in one transaction. A batch has two tallies, so that a worker never waits for a callback:
the worker's is in the batch itself, fenced by the batch's owner, and that of callbacks is in `tallies`. Their sum
is the batch's counts. The counts of removed batches are in their job (`tally`): each step of a removal moves counts
there in one transaction, and raises `steps`.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from enum import Enum
from itertools import pairwise
from typing import Any, Self

from msgspec import Struct
from pymongo import ASCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError
from pymongo.read_concern import ReadConcern

from shared.core.instants import EPOCH
from shared.drivers.mongo.documents import (
    Aggregate,
    Codec,
    Document,
    Page,
    is_duplicate,
    make,
    of_same_place,
    read_page,
)
from shared.drivers.mongo.outbox import OUTBOX, prepare_for_outbox
from shared.drivers.mongo.transactions import OwnSession, end_session, run_transaction
from shared.jobs.rules.jobs import split_key
from shared.jobs.store_jobs import one_job
from shared.messages.rules.jobs import MessageCounts, counted_states, message_event, receipt_of_states
from shared.messages.rules.ledger import Message, MessageState, add_tallies, batch_prefix, difference, prefix_of

_NOTHING_KEPT: Document = {"planned": 0, "duplicates": 0, "steps": 0, "counts": {}}
_COUNTED: Document = {
    "_id": 0,
    "size": 1,
    "tally": 1,
    # Repeats in a file's range are bits: the plan counts them.
    "repeats": {"$cond": [{"$isArray": "$range.repeated"}, {"$size": "$range.repeated"}, 0]},
}


class MessageSums(Aggregate):
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
    counts: dict[str, int] = {}
    for name, value in tally.items():
        if isinstance(value, dict):
            counts |= flatten_tally(value, f"{path}{name}.")
        elif name != "_id":
            counts[f"{path}{name}"] = value
    return counts


WRITTEN_AT_ONCE = 200
"""Recommended maximum of entries in one write: the server handles them in one transaction."""
Transact = Callable[[AsyncClientSession], Awaitable[None]]
"""Writes in the transaction of this session."""
# The server compares each document with a list of all of them: twice as many take more than twice as long.
_UPDATED_AT_ONCE = 100
_SESSION_ID = re.compile(r"[0-9a-f]{32}")
_codec = Codec(Message)


class EntryChange(Struct, frozen=True):
    """An entry as it was read (`None` if there was none) and as it is to be; `between` are the intermediate steps."""

    before: Message | None
    after: Message
    between: tuple[Message, ...] = ()


class WritingSession:
    """The session of all writes for one batch, one write at a time; `wrote_at` is the local time of the last write."""

    def __init__(self, own: OwnSession) -> None:
        self.own = own
        self.lock = asyncio.Lock()
        self.wrote_at = time.monotonic()

    def owner(self, turn: int) -> str:
        """The owner of a batch that was taken in this session with this turn."""
        return f"{self.own.name}/{turn}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self.lock:
            await self.own.close()


class WriteResult(Enum):
    DONE = "done"
    STALE = "stale"  # an entry has changed since it was read: nothing was written
    LOST = "lost"  # another worker owns the batch: nothing was written


class _NotWritten(Exception):
    def __init__(self, result: WriteResult) -> None:
        super().__init__(result)
        self.result = result


class MessageLedger(Aggregate):
    """The `messages` collection, `tallies`, and the field `tally` of batches."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._messages = database["messages"]
        self._tallies = database["tallies"]
        self._batches = database["batches"]
        self._leases = database["send_leases"]

    async def setup(self) -> None:
        """Make the indexes, and the collection without any: an older server cannot make one in a transaction."""
        await self._messages.create_index([("app_id", ASCENDING), ("to", ASCENDING)])
        await self._messages.create_index([("ref", ASCENDING)], sparse=True)
        await make(self._tallies)

    async def get(self, message_id: str) -> Message | None:
        return _codec.maybe(await self._messages.find_one({"_id": message_id}))

    async def with_ids(self, message_ids: Sequence[str]) -> dict[str, Message]:
        # Entries are small: one reply holds many, unlike large documents.
        found = await self._messages.find({"_id": {"$in": list(message_ids)}}).to_list()
        return {message.id: message for message in map(_codec.value, found)}

    async def with_refs(self, refs: Sequence[str]) -> dict[str, Message]:
        """The entries with these provider names, by name, if the name is unique. The names are those of one account."""
        wanted = set(refs)
        while wanted:
            # A provider may give all of its messages one name: a few of them are enough to see that.
            most = 2 * len(wanted)
            found = await self._messages.find({"ref": {"$in": sorted(wanted)}}).limit(most).to_list()
            entries = list(map(_codec.value, found))
            counts = Counter(entry.ref for entry in entries)
            if len(entries) < most:
                return {entry.ref: entry for entry in entries if counts[entry.ref] == 1}
            wanted -= {ref for ref, count in counts.items() if count > 1}
        return {}

    async def read_batch(self, incarnation: str, ordinal: int) -> dict[str, Message]:
        found = await self._messages.find(beginning_with(batch_prefix(incarnation, ordinal))).to_list()
        return {message.id: message for message in map(_codec.value, found)}

    def open_session(self) -> WritingSession:
        return WritingSession(OwnSession(self._database))

    async def end_session(self, owner: str) -> None:
        """End the session of a dead owner and its open transaction. A live owner begins the transaction anew and finds
        the batch taken."""
        if found := _SESSION_ID.match(owner):
            await end_session(self._database, found[0])

    async def write(
        self,
        batch_id: str,
        owner: str,
        changes: Sequence[EntryChange],
        session: WritingSession | None = None,
        *,
        of_singles: bool = False,
        beside: Transact | None = None,
    ) -> WriteResult:
        """Change entries of a batch of this owner, and its tally; in the owner's session, if it has one. With
        `of_singles`, they are single messages, whose lease has the id of their credential, without a tally. `beside`
        writes more in the same transaction."""
        owned = self._leases if of_singles else self._batches
        tally = {} if of_singles else add_tallies(difference(change.before, change.after) for change in changes)
        counted = _increments({"tally": tally, "receipt": _told_of(tally)})
        events = await self._prepare_events(changes)

        async def transact(running: AsyncClientSession) -> None:
            moved = await owned.update_one(
                {"_id": batch_id, "owner": owner},
                {"$currentDate": {"changed_at": True}} | counted,
                session=running,
            )
            if not moved.matched_count:
                raise _NotWritten(WriteResult.LOST)
            await self._change(changes, events, running)
            if beside is not None:
                await beside(running)

        if session is None:
            return await self._run(transact)
        async with session.lock:
            result = await self._run(transact, session.own)
            session.wrote_at = time.monotonic()
        return result

    async def fold(self, changes: Sequence[EntryChange], *, beside: Transact | None = None) -> WriteResult:
        """Change entries by the reports of callbacks, and their batches' tallies; `beside` writes more in the same
        transaction."""
        tallies: dict[str, Counter[str]] = {}
        for change in changes:
            if prefix := prefix_of(change.after.id):
                tallies.setdefault(prefix, Counter()).update(difference(change.before, change.after))
        events = await self._prepare_events(changes)

        async def transact(session: AsyncClientSession) -> None:
            await self._change(changes, events, session)
            if beside is not None:
                await beside(session)
            # Last, because other callbacks may wait for these documents.
            for prefix, tally in sorted(tallies.items()):
                if changed := _increments({"": add_tallies([tally])}):
                    await self._tallies.update_one({"_id": prefix}, changed, upsert=True, session=session)

        return await self._run(transact)

    async def _prepare_events(self, changes: Sequence[EntryChange]) -> list[Document]:
        steps = [step for change in changes for step in pairwise((change.before, *change.between, change.after))]
        events = [message_event(before, after) for before, after in steps if after is not None]
        return await prepare_for_outbox(self._database, [event for event in events if event is not None])

    async def _change(
        self, changes: Sequence[EntryChange], events: Sequence[Document], session: AsyncClientSession
    ) -> None:
        fresh = [_codec.document(change.after) for change in changes if change.before is None]
        known = [(change.before, change.after) for change in changes if change.before is not None]
        if fresh:
            try:
                await self._messages.insert_many(fresh, ordered=True, session=session)
            except BulkWriteError as error:
                if not is_duplicate(error):
                    raise
                raise _NotWritten(WriteResult.STALE) from None
        for first in range(0, len(known), _UPDATED_AT_ONCE):
            await self._replace(known[first : first + _UPDATED_AT_ONCE], session)
        if events:
            await self._database[OUTBOX].insert_many(events, session=session)

    async def _replace(self, known: Sequence[tuple[Message, Message]], session: AsyncClientSession) -> None:
        ids = [before.id for before, _ in known]
        is_as_read = {"$eq": ["$v", of_same_place(ids, [before.v for before, _ in known])]}
        after = of_same_place(ids, [_codec.document(after) for _, after in known])
        # Only ids choose the documents: with other conditions the server may not use their index.
        replaced = await self._messages.update_many(
            {"_id": {"$in": ids}}, [{"$replaceWith": {"$cond": [is_as_read, after, "$$ROOT"]}}], session=session
        )
        if replaced.modified_count < len(known):
            raise _NotWritten(WriteResult.STALE)

    async def _run(self, transact: Transact, own: OwnSession | None = None) -> WriteResult:
        try:
            await run_transaction(self._database, transact, session=own)
        except _NotWritten as refused:
            return refused.result
        return WriteResult.DONE


def turn_of(owner: str) -> int | None:
    """The turn with which this owner took its batch; `None` if unknown."""
    turn = owner.partition("/")[2]
    return int(turn) if turn.isdigit() else None


def _told_of(tally: Mapping[str, int]) -> dict[str, int]:
    """The change of the batch's receipt, which shows progress before the batch is settled."""
    receipt = receipt_of_states(tally, {})
    return {"sent": receipt.sent, "failed": receipt.failed, "skipped": receipt.skipped}


def _increments(fields: Mapping[str, Mapping[str, int]]) -> Document:
    """The change that adds these counts to fields of a document; `""` is the document itself."""
    counts = {f"{field}.{name}".lstrip("."): count for field, told in fields.items() for name, count in told.items()}
    return {"$inc": counts} if any(counts.values()) else {}


_BATCH = 1_000
# Default values are not stored in the document.
_UNWRITTEN = {state: [None] if state is MessageState.UNSENT else [] for state in MessageState}
# Calls of a message change its own times. In that order a reader of pages would see some messages twice, and
# others never. So a job's message has the time of its job.
_INCARNATION = {"$arrayElemAt": [{"$split": ["$_id", "."]}, 0]}
_JOB: Document = {
    "from": "jobs",
    "localField": "job",
    "foreignField": "incarnation",
    "pipeline": [{"$project": {"_id": 0, "created_at": 1}}],
    "as": "job",
}
_MADE = {"$toDate": {"$toLong": {"$divide": ["$job.created_at", 1_000_000]}}}
_ACCEPTED = {"$ifNull": ["$single.created_at", {"$ifNull": [_MADE, EPOCH]}]}


class Dated(Struct, frozen=True):
    """A message, and the time when it or its job was accepted."""

    message: Message
    at: datetime


class LedgerLists(Aggregate):
    """Reads the `messages` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._messages = database["messages"]

    async def page(
        self, incarnation: str, *, state: MessageState | None = None, after: str = "", limit: int
    ) -> Page[Message]:
        """The messages of an incarnation in the order of its audience, after the id `after`; in one state, if given."""
        query = beginning_with(f"{incarnation}.")
        query["_id"]["$gt"] = max(after, query["_id"]["$gt"])
        query |= {} if state is None else {"state": {"$in": [state.value, *_UNWRITTEN[state]]}}
        return await read_page(self._messages, query, _codec.value, order=("_id",), limit=limit, batch=_BATCH)

    async def find_recipient(
        self, app_id: str, addresses: Collection[str], *, before: tuple[datetime, str] | None = None, limit: int
    ) -> Page[Dated]:
        """The app's messages to one of these addresses, the newest first, behind the instant and id `before`."""
        pipeline: list[Document] = [
            {"$match": {"app_id": app_id, "to": {"$in": list(addresses)}}},
            {"$addFields": {"job": _INCARNATION}},
            {"$lookup": _JOB},
            {"$unwind": {"path": "$job", "preserveNullAndEmptyArrays": True}},
            {"$addFields": {"at": _ACCEPTED}},
            {"$project": {"job": 0}},
        ]
        if before is not None:
            at, message_id = before
            pipeline.append({"$match": {"$or": [{"at": {"$lt": at}}, {"at": at, "_id": {"$lt": message_id}}]}})
        pipeline += [{"$sort": {"at": -1, "_id": -1}}, {"$limit": limit + 1}]
        found = await (await self._messages.aggregate(pipeline, batchSize=_BATCH)).to_list()
        page = Page(Dated(_codec.value(document), document["at"]) for document in found[:limit])
        page.more = len(found) > limit
        return page

    async def find_ref(self, app_id: str, ref: str) -> list[Message]:
        """The app's messages with this provider id: one, unless the provider used it twice."""
        found = await self._messages.find({"ref": ref, "app_id": app_id}).limit(_BATCH).to_list()
        return [_codec.value(document) for document in found]
