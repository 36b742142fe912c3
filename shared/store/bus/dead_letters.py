"""Dead letters of the bus, until a user retries or discards them. The bus's upkeep deletes old ones."""

from contextlib import suppress
from datetime import datetime

from msgspec import Struct
from pymongo import ASCENDING, DESCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.bus.dead_letters import MOST_OPEN, BusDeadLetter, BusLetterPlace, reopen
from shared.domain.bus.deliveries import REOPENABLE
from shared.domain.bus.wake_ups import Wake
from shared.domain.errors import Unavailable
from shared.store.bus.cursors import CURSORS, cursor_codec
from shared.store.bus.cuts import DELIVERIES, delivery_codec
from shared.store.bus.flushes import UNWOKEN, Unwoken, unwoken_document
from shared.store.bus.moves import CursorMoved, move_cursors
from shared.store.documents import Aggregate, Codec, Document, Page, forget_some, read_newest, read_page
from shared.store.transactions import run_transaction

LETTERS = "bus_dead_letters"

_BATCH = 500
_TRIES = 10
_WITHOUT_EVENTS = {"events": 0}
letter_codec = Codec(BusDeadLetter)


class LetterRetry(Struct, frozen=True):
    """The outcome of a retry: the queue to wake if the delivery is open again. Without one, the letter or its queue is
    gone, or the queue has too many open deliveries (`is_full`)."""

    unwoken: Unwoken | None = None
    is_full: bool = False


class BusDeadLetters(Aggregate):
    """The `bus_dead_letters` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._letters = database[LETTERS]
        self._deliveries = database[DELIVERIES]
        self._cursors = database[CURSORS]
        self._unwoken = database[UNWOKEN]

    async def setup(self) -> None:
        for leading in ((), ("namespace",), ("namespace", "key")):
            await self._letters.create_index([(field, ASCENDING) for field in (*leading, "died_at", "_id")])

    async def get(self, namespace: str, letter_id: str) -> BusDeadLetter | None:
        """A dead letter of this namespace, with its events."""
        return letter_codec.maybe(await self._letters.find_one({"_id": letter_id, "namespace": namespace}))

    async def estimate_count(self) -> int:
        return await self._letters.estimated_document_count()

    async def page(
        self,
        namespace: str,
        *,
        key: str = "",
        before: BusLetterPlace | None = None,
        limit: int,
        losses: bool = True,
    ) -> Page[BusDeadLetter]:
        """A namespace's dead letters behind the place `before`, the newest first, without their events; only those of
        `key` if it is given; without `losses`, only deliveries."""
        query: Document = {"namespace": namespace} | ({"key": key} if key else {})
        query |= {} if losses else {"sequence": {"$gt": 0}}
        place = None if before is None else (before.died_at, before.id)
        return await read_newest(self._read, query, "died_at", place, limit)

    async def retry(self, letter: BusDeadLetter, now: datetime) -> LetterRetry:
        """Open the delivery of this letter again: the letter goes, the queue's cursor counts the delivery, and a note
        names the queue to wake."""

        async def transact(session: AsyncClientSession) -> LetterRetry:
            found = await self._cursors.find_one({"_id": letter.queue}, session=session)
            if found is None:
                return LetterRetry()
            cursor = cursor_codec.value(found)
            if cursor.open_deliveries >= MOST_OPEN:
                return LetterRetry(is_full=True)
            deleted = await self._letters.delete_one({"_id": letter.id, "died_at": letter.died_at}, session=session)
            if not deleted.deleted_count:
                return LetterRetry()
            after, delivery = reopen(cursor, letter, now)
            await move_cursors(self._cursors, [(cursor, after)], session)
            document = delivery_codec.document(delivery)  # it may have been deleted before its letter
            dead = {"_id": delivery.id, "status": {"$in": [status.value for status in REOPENABLE]}}
            await self._deliveries.replace_one(dead, document, upsert=True, session=session)
            unwoken = Unwoken(f"{letter.id}/retry/{after.v}", [Wake(letter.queue, now, letter.count)])
            await self._unwoken.insert_one(unwoken_document(unwoken, now), session=session)
            return LetterRetry(unwoken)

        for _ in range(_TRIES):
            with suppress(CursorMoved):
                return await run_transaction(self._database, transact)
        raise Unavailable(f"the queue {letter.queue} moves all the time")

    async def remove(self, letter: BusDeadLetter) -> bool:
        """Delete this letter, but not one of a later death; returns whether it was there."""
        removed = await self._letters.delete_one({"_id": letter.id, "died_at": letter.died_at})
        return removed.deleted_count > 0

    async def forget(self, before: datetime, limit: int) -> int:
        return await forget_some(self._letters, {"died_at": {"$lt": before}}, limit)

    async def _read(self, query: Document, limit: int) -> Page[BusDeadLetter]:
        return await read_page(
            self._letters, query, letter_codec.value, order=("died_at", "_id"), direction=DESCENDING, limit=limit,
            without=_WITHOUT_EVENTS, batch=_BATCH,
        )  # fmt: skip
