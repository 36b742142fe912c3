"""Writing with the registry: each change of subscriptions is one transaction, and all of them raise one number.

A process that dies or freezes in such a transaction would block the changes of all namespaces, for a minute if only the
server ends it. So a writer first notes its session, outside the transaction, which deletes the note. A process that
finds a note older than a transaction takes ends its session. A live writer begins anew, because nothing was stored.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

import structlog
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.errors import Unavailable
from shared.store.documents import Document, make, translate_errors
from shared.store.transactions import LastingConflict, OwnSession, end_session, run_transaction

log = structlog.get_logger(__name__)

_ALLOWED = timedelta(seconds=2)  # such transactions take some milliseconds
_PATIENCE, _WAIT_SECONDS = 0.5, 4.0

Written = TypeVar("Written")


class RegistryWriter:
    """The registry changes of one process, one after the other."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._notes = database["bus_registry_writers"]
        self._own: OwnSession | None = None
        self._turn = asyncio.Lock()

    async def setup(self) -> None:
        await make(self._notes)

    async def write(self, work: Callable[[AsyncClientSession], Awaitable[Written]], *, now: datetime) -> Written:
        """The answer of `work`, after its writes are stored; it is called again after a conflict. An error in `work`
        ends the transaction without a write. `now` is the database's time."""
        began = time.monotonic()
        # Concurrent changes would undo each other again and again.
        async with self._turn:
            session = self._open_session()
            await self._note(session, now + _since(began))
            while True:
                try:
                    transact = self._forget_note_after(work, session)
                    return await run_transaction(self._database, transact, session=session, patience=_PATIENCE)
                except LastingConflict:
                    if _since(began) > timedelta(seconds=_WAIT_SECONDS):
                        raise
                    await self.end_overdue(now + _since(began))
                except Unavailable:
                    raise  # the outcome is unknown: the note stays
                except Exception:
                    await self._forget_note(session)
                    raise

    async def end_overdue(self, now: datetime) -> int:
        """End the sessions of overdue writers, with their locks; returns the number."""
        with translate_errors():
            found = await self._notes.find({"at": {"$lt": now - _ALLOWED}}, {"_id": 1}).to_list()
        names = [document["_id"] for document in found if self._own is None or document["_id"] != self._own.name]
        for name in names:
            log.warning("who changed subscriptions has not come back: its transaction is ended", session=name)
            await end_session(self._database, name)
            with translate_errors():
                await self._notes.delete_one({"_id": name, "at": {"$lt": now - _ALLOWED}})
        return len(names)

    async def _note(self, session: OwnSession, at: datetime) -> None:
        with translate_errors():
            await self._notes.update_one({"_id": session.name}, {"$set": {"at": at}}, upsert=True)

    async def _forget_note(self, session: OwnSession) -> None:
        """Nothing was written. A failure here costs a false alarm."""
        with suppress(Unavailable), translate_errors():
            await self._notes.delete_one({"_id": session.name})

    def _forget_note_after(
        self, work: Callable[[AsyncClientSession], Awaitable[Written]], own: OwnSession
    ) -> Callable[[AsyncClientSession], Awaitable[Written]]:
        async def transact(session: AsyncClientSession) -> Written:
            written = await work(session)
            await self._notes.delete_one({"_id": own.name}, session=session)
            return written

        return transact

    def _open_session(self) -> OwnSession:
        if self._own is None:
            self._own = OwnSession(self._database)
        return self._own


def _since(began: float) -> timedelta:
    return timedelta(seconds=time.monotonic() - began)
