"""Replays: one document each. A worker owns one by a token while its lease lasts. One transaction writes the reading
position and the events of the queue, so a crash neither repeats nor drops an event.

A worker that dies in a flush leaves its transaction open, as a fan-out does. So the document names the session of its
owner, and the next owner ends that session first.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct, to_builtins
from pymongo import ASCENDING, DESCENDING, ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from shared.bus.rules.deliveries import BusDeadLetter
from shared.bus.rules.folding import EventChunk
from shared.bus.rules.notices import BusNotice, notice_of_missing
from shared.bus.rules.replays import (
    REPLAY_TRANSITIONS,
    REPLAYS_OVER,
    WORKED_ON,
    Replay,
    ReplayState,
    begin_at,
    replay_id,
    replay_of_suspension,
)
from shared.bus.rules.subscriptions import EventSubscription, SubscriptionStatus
from shared.bus.rules.wake_ups import Wake
from shared.bus.store_cuts import CURSORS
from shared.bus.store_deliveries import LETTERS
from shared.bus.store_log import FlushResult, add_loss, bring_to_queues, hold_all_positions
from shared.bus.store_topics import SUBSCRIPTIONS
from shared.core.documents import sources
from shared.core.instants import EPOCH
from shared.drivers.mongo.documents import BSON_TYPES, Aggregate, Codec, Document, Page, forget_some, make, read_page
from shared.drivers.mongo.transactions import OwnSession, end_session, run_transaction

REPLAYS = "bus_replays"

_codec = Codec(Replay)
_TRANSACTION_SECONDS = 10.0
_MOST_NUMBER = 10**9
_OPEN = {"$in": sorted(state.value for state in ReplayState if state not in REPLAYS_OVER)}
_WORKED_ON = {"$in": sorted(state.value for state in WORKED_ON)}


class ReplayFlush(Struct, frozen=True, kw_only=True):
    """The writes of one flush of a replay, at the time `at`. `version` is the subscription's at the fold. `missing`
    reports records that the log has no more."""

    before: Replay
    after: Replay
    version: int
    at: datetime
    chunks: Sequence[EventChunk] = ()
    wakes: Sequence[Wake] = ()
    missing: BusNotice | None = None

    @property
    def unwoken(self) -> Mapping[str, Sequence[Wake]]:
        return {f"{self.after.id}/{self.after.step}": self.wakes} if self.wakes else {}


class _NothingWritten(Exception):
    def __init__(self, result: FlushResult) -> None:
        super().__init__(result)
        self.result = result


class BusReplays(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._replays = database[REPLAYS]

    async def setup(self) -> None:
        await make(self._replays)
        await self._replays.create_index([("state", ASCENDING), ("leased_until", ASCENDING)])
        await self._replays.create_index([("queue", ASCENDING), ("state", ASCENDING)])
        await self._replays.create_index([("ended_at", ASCENDING)])

    def open_session(self) -> OwnSession:
        return OwnSession(self._database)

    async def add(self, replay: Replay) -> bool:
        try:
            await self._replays.insert_one(_codec.document(replay))
        except DuplicateKeyError:
            return False
        return True

    async def add_in_place_of(self, letter: BusDeadLetter, replay: Replay) -> bool:
        """Store the replay of a loss: its letter goes, and its events no longer count as lost; `False` if the letter is
        gone or the number is taken."""

        async def transact(session: AsyncClientSession) -> bool:
            this = {"_id": letter.id, "died_at": letter.died_at}
            if not (await self._database[LETTERS].delete_one(this, session=session)).deleted_count:
                return False
            counted = {"$inc": {"v": 1, "lost": -letter.count}}
            await self._database[CURSORS].update_one({"_id": letter.queue}, counted, session=session)
            await self._replays.insert_one(_codec.document(replay), session=session)
            return True

        try:
            return await run_transaction(self._database, transact)
        except DuplicateKeyError:
            return False

    async def get(self, id: str) -> Replay | None:
        return _codec.maybe(await self._replays.find_one({"_id": id}))

    async def page(self, queue: str, *, below: int | None = None, limit: int) -> Page[Replay]:
        query = _of_queue(queue, _MOST_NUMBER if below is None else below)
        return await read_page(self._replays, query, _codec.value, order=("_id",), direction=DESCENDING, limit=limit)

    async def has_open(self, queue: str) -> bool:
        return await self._replays.find_one({"queue": queue, "state": _OPEN}, {"_id": 1}) is not None

    async def find_open(self, queues: Sequence[str]) -> set[str]:
        query = {"queue": {"$in": list(queues)}, "state": _OPEN}
        return {found["queue"] for found in await self._replays.find(query, {"queue": 1}).to_list()}

    async def count_open(self) -> Mapping[ReplayState, int]:
        stages: list[Document] = [{"$match": {"state": _OPEN}}, {"$group": {"_id": "$state", "n": {"$sum": 1}}}]
        found = await (await self._replays.aggregate(stages)).to_list()
        return {ReplayState(document["_id"]): document["n"] for document in found}

    async def count_worked_on(self, namespace: str, *, most: int) -> int:
        """The number of a namespace's replays with work left, up to `most`."""
        return await self._replays.count_documents({"state": _WORKED_ON, "namespace": namespace}, limit=most)

    async def cancel_all(self, queue: str, reason: str, at: datetime) -> int:
        return (await self._replays.update_many(*_cancel_open(queue, reason, at))).modified_count

    async def take(
        self, id: str, token: str, session: OwnSession, *, now: datetime, leased_until: datetime
    ) -> Replay | None:
        """Lease a free replay, to flush in this session; `None` if it is leased or has no work. The session of its
        previous owner is ended."""
        free = {"_id": id, "state": _WORKED_ON, "leased_until": {"$lte": now}}
        found = await self._replays.find_one(free, {"session": 1})
        if found is None:
            return None
        if "session" in found:
            await end_session(self._database, found["session"])
        taken = {"token": token, "leased_until": leased_until, "session": session.name, "told_at": None}
        return await self._set(free, taken)

    async def store(self, before: Replay, after: Replay) -> bool:
        """Write an owned replay, and nothing else; `False` if it is not owned any more."""
        return await self._set(_as_it_was(before), _fields(after)) is not None

    async def flush(self, flush: ReplayFlush, session: OwnSession) -> FlushResult:
        """Write all of the flush, or nothing: `OUTDATED` if the subscription has changed, `OVERTAKEN` if the replay is
        over or not owned any more."""

        async def transact(running: AsyncClientSession) -> None:
            of_it = {"_id": flush.before.subscription}
            stands = await self._database[SUBSCRIPTIONS].find_one(of_it, {"version": 1}, session=running)
            if stands is None or stands["version"] != flush.version:
                raise _NothingWritten(FlushResult.OUTDATED)
            change = {"$set": _fields(flush.after)}
            moved = await self._replays.update_one(_as_it_was(flush.before), change, session=running)
            if moved.matched_count == 0:
                raise _NothingWritten(FlushResult.OVERTAKEN)
            after, mark = flush.after, f"~{flush.after.number}"
            await bring_to_queues(
                self._database,
                flush.chunks,
                flush.unwoken,
                order=after.order,
                at=flush.at,
                session=running,
                mark=mark,
            )
            if flush.missing is not None:
                await add_loss(self._database, flush.missing, running)

        try:
            await run_transaction(self._database, transact, session=session, seconds=_TRANSACTION_SECONDS)
        except _NothingWritten as refused:
            return refused.result
        return FlushResult.STORED

    async def release(self, replay: Replay, told_at: datetime | None = None) -> None:
        """Release the replay to other workers, who are told at `told_at`; if it is `None`, upkeep tells them."""
        await self._set(_ours(replay), {"leased_until": EPOCH, "told_at": told_at})

    async def leave(self, id: str, session: OwnSession) -> None:
        """Remove this session's name from a replay, because the next user of the session must not be ended for it."""
        await self._replays.update_one({"_id": id, "session": session.name}, {"$unset": {"session": ""}})

    async def note_fault(self, id: str) -> Replay | None:
        """Count a fault of Carillon's; `None` if the replay is over."""
        found = await self._replays.find_one_and_update(
            {"_id": id, "state": _WORKED_ON}, {"$inc": {"faults": 1}}, return_document=ReturnDocument.AFTER
        )
        return _codec.maybe(found)

    async def fail(self, id: str, reason: str, at: datetime) -> Replay | None:
        """Fail a replay because of Carillon's faults, even a leased one, and report its missing events as lost; `None`
        if it is over."""
        states = {"$in": sorted(state.value for state in sources(REPLAY_TRANSITIONS, ReplayState.FAILED))}
        fields = {"state": ReplayState.FAILED.value, "reason": reason, "ended_at": at}

        async def transact(session: AsyncClientSession) -> Replay | None:
            found = _codec.maybe(
                await self._replays.find_one_and_update(
                    {"_id": id, "state": states},
                    {"$set": fields},
                    return_document=ReturnDocument.AFTER,
                    session=session,
                )
            )
            if found is not None:
                await add_loss(self._database, notice_of_missing(found, found.total - found.read, at, "fault"), session)
            return found

        return await run_transaction(self._database, transact)

    async def find_untold(self, now: datetime, told_before: datetime, *, limit: int) -> Sequence[str]:
        """The ids of up to `limit` free replays with work, of which workers were told before `told_before` or never;
        the longest waiting first."""
        found = self._replays.find(_untold(now, told_before), {"_id": 1}).sort("leased_until", ASCENDING)
        return [document["_id"] async for document in found.limit(limit)]

    async def note_told(self, id: str, now: datetime, told_before: datetime) -> bool:
        """Record that workers are told now; `False` if the replay is leased or was told."""
        return await self._set({"_id": id} | _untold(now, told_before), {"told_at": now}) is not None

    async def forget(self, before: datetime, limit: int) -> int:
        return await forget_some(self._replays, {"ended_at": {"$lt": before}}, limit)

    async def _set(self, query: Document, fields: Document) -> Replay | None:
        found = await self._replays.find_one_and_update(query, {"$set": fields}, return_document=ReturnDocument.AFTER)
        return _codec.maybe(found)


async def move_replays(
    database: AsyncDatabase[Document],
    before: EventSubscription,
    after: EventSubscription,
    session: AsyncClientSession,
) -> None:
    """Change the replays of a subscription in the transaction that changes it. A suspension stores a waiting replay,
    which begins at the resumption. Raises the driver's errors."""
    if before.state is after.state:
        return
    replays = database[REPLAYS]
    if after.state is SubscriptionStatus.SUSPENDED:
        last = replays.find(_of_queue(after.queue), {"number": 1}, session=session).sort("_id", DESCENDING).limit(1)
        number = max([document["number"] for document in await last.to_list()], default=0) + 1
        waiting = replay_of_suspension(after, number, await hold_all_positions(database, session), after.updated_at)
        await replays.insert_one(_codec.document(waiting), session=session)
    elif after.state is SubscriptionStatus.REMOVED:
        changes = _cancel_open(after.queue, "its subscription is removed", after.updated_at)
        await replays.update_many(*changes, session=session)
    elif before.state is SubscriptionStatus.SUSPENDED:
        waiting_ones = _of_queue(after.queue) | {"state": ReplayState.WAITING.value}
        begun = to_builtins(begin_at(after.updated_at), builtin_types=BSON_TYPES)
        await replays.update_many(waiting_ones, {"$set": begun}, session=session)


def _cancel_open(queue: str, reason: str, at: datetime) -> tuple[Document, Document]:
    fields = {"state": ReplayState.CANCELLED.value, "reason": reason, "ended_at": at}
    return _of_queue(queue) | {"state": _OPEN}, {"$set": fields}


def _untold(now: datetime, told_before: datetime) -> Document:
    told = [{"told_at": None}, {"told_at": {"$lt": told_before}}]
    return {"state": _WORKED_ON, "leased_until": {"$lte": now}, "$or": told}


def _of_queue(queue: str, below: int = _MOST_NUMBER) -> Document:
    return {"_id": {"$gt": replay_id(queue, 0), "$lt": replay_id(queue, below)}}


def _ours(replay: Replay) -> Document:
    return {"_id": replay.id, "token": replay.token}


def _as_it_was(replay: Replay) -> Document:
    return _ours(replay) | {"state": _WORKED_ON, "step": replay.step}


def _fields(replay: Replay) -> Document:
    document = _codec.document(replay)
    del document["_id"]
    return document
