"""Transactions: several writes that happen together or not at all, and their remains after a crash.

A process that dies in a transaction leaves it open, and the server locks the touched documents for up to a minute. So a
process that writes again and again uses one session and stores the session's id beside its writes. Its successor ends
that session first (`end_session`). A live process whose session was ended begins its transaction anew.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import pymongo
from bson.binary import UUID_SUBTYPE, Binary
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from shared.core.errors import Unavailable
from shared.drivers.mongo.documents import Document, translate_errors

TRANSACTION_SECONDS = 5.0

_WRITE_CONFLICT, _INTERRUPTED = 112, 11601
_ENDED_WITHIN_SECONDS = 2.0

Written = TypeVar("Written")


class LastingConflict(Unavailable):
    """Nothing was written: another transaction has kept a document for longer than the caller's patience."""


async def run_transaction(
    database: AsyncDatabase[Document],
    work: Callable[[AsyncClientSession], Awaitable[Written]],
    *,
    session: "OwnSession | None" = None,
    seconds: float = TRANSACTION_SECONDS,
    patience: float = TRANSACTION_SECONDS,
) -> Written:
    """The answer of `work`, after everything that it wrote in its session is stored. The driver calls `work` again if
    another transaction wrote the same documents first, for `patience` seconds. An error in `work` ends the transaction
    without a write.

    Raises:
        LastingConflict: after `patience`, another transaction still has the same documents.
        Unavailable: the server is away or too slow. The transaction may be stored or not.
    """
    work = _give_up_after(patience, work)
    async with _end_if_unknown(database, session) as running:
        with translate_errors(), pymongo.timeout(seconds):
            # A transaction inherits nothing from the collections: without these options it takes the URL's.
            return await running.with_transaction(
                work,
                read_concern=ReadConcern("snapshot"),
                write_concern=database.write_concern,
                read_preference=database.read_preference,
            )


@asynccontextmanager
async def _end_if_unknown(
    database: AsyncDatabase[Document], given: "OwnSession | None"
) -> AsyncIterator[AsyncClientSession]:
    """The given session, or a new one for one transaction. After a deadline the driver sends no abort, and the server
    would lock the written documents for a minute. So the server ends the session if the outcome is unknown. The driver
    may use the session again."""
    own = given or OwnSession(database)
    try:
        yield own.session
    except LastingConflict:
        raise
    except Unavailable:
        with suppress(Unavailable), pymongo.timeout(_ENDED_WITHIN_SECONDS):
            await end_session(database, own.name)
        if given is None:
            await own.close()
        raise
    finally:
        if given is None:
            # No other process knows its name: the driver may use it again.
            await own.session.end_session()


def _give_up_after(
    patience: float, work: Callable[[AsyncClientSession], Awaitable[Written]]
) -> Callable[[AsyncClientSession], Awaitable[Written]]:
    """The same work, which the driver does not call again if conflicts have lasted `patience` seconds."""
    until = time.monotonic() + patience

    async def try_once(session: AsyncClientSession) -> Written:
        try:
            return await work(session)
        except OperationFailure as error:
            if error.code == _INTERRUPTED:
                # Another process ended this session, and nothing was stored: the driver begins anew.
                details = {**(error.details or {}), "errorLabels": ["TransientTransactionError"]}
                raise OperationFailure(str(error), error.code, details) from error
            if error.code == _WRITE_CONFLICT and time.monotonic() >= until:
                raise LastingConflict("MongoDB: another transaction keeps what is to be written") from error
            raise

    return try_once


class OwnSession:
    """A session of one process for one transaction after the other. Others end it by its `name`: 32 hex digits."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self.session: AsyncClientSession = database.client.start_session()
        identity: bytes = self.session.session_id["id"]
        self.name = identity.hex()

    async def close(self) -> None:
        """End the session and its open transaction. Others may end it by its name later, so the driver must not use
        that name for its next session."""
        if (known := self.session._server_session) is not None:  # noqa: SLF001
            known.mark_dirty()
        await self.session.end_session()


async def end_session(database: AsyncDatabase[Document], name: str) -> None:
    """End the session with this name and its open transaction."""
    session_id = Binary(bytes.fromhex(name), UUID_SUBTYPE)
    with translate_errors():
        await database.client.admin.command({"killSessions": [{"id": session_id}]})
