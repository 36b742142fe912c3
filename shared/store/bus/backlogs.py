"""Backlogs beyond their limits. One transaction deletes the lost chunks of a queue, counts them at its cursor and
stores a dead letter, so an event is either lost or cut, never both."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.bus.backlog import Backlog, Surplus
from shared.domain.bus.cutting import ChunkHead, QueuedChunk
from shared.domain.bus.dead_letters import BusDeadLetter
from shared.domain.bus.notices import notice_of_loss, notice_of_surplus
from shared.domain.bus.subscriptions import EventSubscription
from shared.domain.instants import EPOCH
from shared.store.bus.cursors import CURSORS
from shared.store.bus.cuts import chunk_codec, read_first_heads
from shared.store.bus.dead_letters import LETTERS, letter_codec
from shared.store.bus.flushes import CHUNKS, read_all_positions
from shared.store.bus.notices import add_loss
from shared.store.bus.standings import backlog_of, sum_of_chunks
from shared.store.documents import Aggregate, Document
from shared.store.outbox import OUTBOX, not_taken
from shared.store.transactions import run_transaction

_CHUNKS = 100  # of one queue at a time
_OWN_EVENTS = 1_000

ChooseSurplus = Callable[[Sequence[ChunkHead], Backlog | None], Surplus | None]
"""Chooses the surplus to lose, from the queue's first chunks and its whole backlog."""


class BusBacklogs(Aggregate):
    """The collections `bus_chunks`, `bus_cursors`, `bus_dead_letters` and `bus_notices`, when events are lost."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._chunks = database[CHUNKS]
        self._cursors = database[CURSORS]
        self._letters = database[LETTERS]
        self._outbox = database[OUTBOX]

    async def lose(self, subscription: EventSubscription, choose: ChooseSurplus, now: datetime) -> Surplus | None:
        """Delete the chunks that `choose` selects within the transaction, and store a letter and a notice about them;
        returns the loss."""

        async def transact(session: AsyncClientSession) -> Surplus | None:
            surplus = choose(*await self._read(subscription.queue, session))
            if surplus is None:
                return None
            these = {"_id": {"$in": [head.id for head in surplus.heads]}}
            found = await self._chunks.find(these, session=session).to_list()
            positions = await read_all_positions(self._database, session)
            logs = {partition: at.log for partition, at in positions.items() if not at.left}
            letter = _letter(logs, [chunk_codec.value(document) for document in found], surplus, subscription, now)
            change = {"$inc": {"v": 1, "lost": letter.count}}
            cursor = await self._cursors.find_one_and_update(
                {"_id": subscription.queue}, change, return_document=ReturnDocument.AFTER, session=session
            )
            if cursor is None:
                return None
            await self._chunks.delete_many(these, session=session)
            letter_id = f"{subscription.queue}.lost.{cursor['v']}"
            await self._letters.insert_one(letter_codec.document(letter) | {"_id": letter_id}, session=session)
            await add_loss(self._database, notice_of_loss(letter, cursor["v"]), session)
            return surplus

        return await run_transaction(self._database, transact)

    async def lose_of_outbox(self, most: int, now: datetime) -> int:
        """Delete some of the oldest of Carillon's own events if more than `most` are unpublished, and store a notice;
        returns the number. Events that a fan-out is publishing stay."""
        # An estimate may be wrong after the server has died, and on other servers at any time.
        surplus = await self._outbox.count_documents({}, limit=most + _OWN_EVENTS) - most
        if surplus <= 0:
            return 0
        found = self._outbox.find(not_taken(now), {"_id": 1}).sort("stored_at", ASCENDING)
        ids = [document["_id"] for document in await found.limit(surplus).to_list()]

        async def transact(session: AsyncClientSession) -> int:
            these = not_taken(now) | {"_id": {"$in": ids}}
            gone = (await self._outbox.delete_many(these, session=session)).deleted_count
            if gone:
                await add_loss(self._database, notice_of_surplus(ids[0], gone, now), session)
            return gone

        return await run_transaction(self._database, transact)

    async def _read(self, queue: str, session: AsyncClientSession) -> tuple[Sequence[ChunkHead], Backlog | None]:
        heads = await read_first_heads(self._chunks, {"queue": queue}, _CHUNKS, session)
        summed = await self._chunks.aggregate(sum_of_chunks({"queue": queue}), session=session)
        return heads, next(map(backlog_of, await summed.to_list()), None)


def _letter(
    logs: Mapping[str, str],
    chunks: Sequence[QueuedChunk],
    surplus: Surplus,
    subscription: EventSubscription,
    now: datetime,
) -> BusDeadLetter:
    """A letter without the events: the first and last arrival, and their places in the log of each partition."""
    offsets = _ends(place for chunk in chunks for place in chunk.offsets[chunk.skip :])
    events = [event for chunk in chunks for event in chunk.events[chunk.skip :]]
    arrivals = [arrival for chunk in chunks for arrival in chunk.arrivals[chunk.skip :]] or [0]
    return BusDeadLetter(
        id="",
        queue=subscription.queue,
        subscription=subscription.id,
        namespace=subscription.namespace,
        key=subscription.key,
        reason=surplus.reason,
        died_at=now,
        sequence=0,
        count=len(events),
        size=sum(map(len, events)),
        first_at=EPOCH + timedelta(milliseconds=min(arrivals)),
        last_at=EPOCH + timedelta(milliseconds=max(arrivals)),
        offsets=offsets,
        logs={partition: logs[partition] for partition, _ in offsets if partition in logs},
    )


def _ends(places: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    by_partition: dict[str, list[int]] = {}
    for partition, offset in places:
        by_partition.setdefault(partition, []).append(offset)
    return tuple(
        (partition, end) for partition, offsets in sorted(by_partition.items()) for end in (min(offsets), max(offsets))
    )
