"""Transactions: several writes that happen together or not at all, and what they leave when their process dies.

A process that dies in a transaction leaves it open, and the server keeps what it has touched from others for up to a
minute. So whoever writes again and again does it in one session and stores that session's id beside what it writes: who
takes its place ends its session first (`end_session`). One who is not gone begins its transaction anew.
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

from shared.domain.errors import Unavailable
from shared.store.documents import Document, translate_errors

TRANSACTION_SECONDS = 5.0

_WRITE_CONFLICT, _INTERRUPTED = 112, 11601
_ENDED_WITHIN_SECONDS = 2.0

Written = TypeVar("Written")


class LastingConflict(Unavailable):
    """Nothing was written: another transaction has kept a document for longer than we were to wait."""


async def run_transaction(
    database: AsyncDatabase[Document],
    work: Callable[[AsyncClientSession], Awaitable[Written]],
    *,
    session: "OwnSession | None" = None,
    seconds: float = TRANSACTION_SECONDS,
    patience: float = TRANSACTION_SECONDS,
) -> Written:
    """The answer of `work`, once all that it has written in the session that it is given is stored. It is called again
    where another transaction has written the same documents first, for so many seconds of `patience`. An error that it
    raises ends the transaction without a write.

    Raises:
        LastingConflict: another transaction still has the same documents then.
        Unavailable: the server is away or too slow. Whether all is stored is not known.
    """
    work = _give_up_after(patience, work)
    async with _end_if_unknown(database, session) as running:
        with translate_errors(), pymongo.timeout(seconds):
            # A transaction inherits nothing from the collections: without these it takes the URL's.
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
    """The given session, or one for one transaction. Behind a deadline the driver sends no abort, and the server would
    keep what was written from others for a minute: so the server ends the session where nobody knows how the
    transaction did. The driver may go on in it."""
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
            # Nobody else knows its name: the driver may use it again.
            await own.session.end_session()


def _give_up_after(
    patience: float, work: Callable[[AsyncClientSession], Awaitable[Written]]
) -> Callable[[AsyncClientSession], Awaitable[Written]]:
    """The same work, which the driver does not call again once conflicts have lasted so long."""
    until = time.monotonic() + patience

    async def try_once(session: AsyncClientSession) -> Written:
        try:
            return await work(session)
        except OperationFailure as error:
            if error.code == _INTERRUPTED:
                # Somebody has ended our session, and nothing was stored. We are not gone: the driver begins anew.
                details = {**(error.details or {}), "errorLabels": ["TransientTransactionError"]}
                raise OperationFailure(str(error), error.code, details) from error
            if error.code == _WRITE_CONFLICT and time.monotonic() >= until:
                raise LastingConflict("MongoDB: another transaction keeps what is to be written") from error
            raise

    return try_once


class OwnSession:
    """A session of one process, in which it does one transaction after the other. Others end it by its `name`: 32 hex
    digits."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self.session: AsyncClientSession = database.client.start_session()
        identity: bytes = self.session.session_id["id"]
        self.name = identity.hex()

    async def close(self) -> None:
        """End it, and the transaction that is open in it. Others may end it by its name later: so the driver, which
        would begin its next session by that name, is told to forget it."""
        if (known := self.session._server_session) is not None:  # noqa: SLF001
            known.mark_dirty()
        await self.session.end_session()


async def end_session(database: AsyncDatabase[Document], name: str) -> None:
    """End the session of this name, and the transaction that may be open in it. Raises `Unavailable`."""
    session_id = Binary(bytes.fromhex(name), UUID_SUBTYPE)
    with translate_errors():
        await database.client.admin.command({"killSessions": [{"id": session_id}]})
