"""A transaction that fails leaves nothing that keeps others from writing."""

import asyncio
import time

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure

from shared.core.errors import Unavailable
from shared.drivers.mongo.transactions import OwnSession, end_session, run_transaction
from shared.store import Store

pytestmark = pytest.mark.native


async def test_one_whose_deadline_passes_between_two_statements_keeps_nobody_waiting(
    store: Store, ready_database: str
) -> None:
    """As in a process whose loop was busy for too long: the driver sends nothing more then, no abort either."""
    things = store._database["things"]
    await things.insert_one({"_id": "a", "n": 0})

    async def transact(session: AsyncClientSession) -> None:
        await things.update_one({"_id": "a"}, {"$inc": {"n": 1}}, session=session)
        time.sleep(0.6)
        await things.find_one({"_id": "a"}, session=session)

    with pytest.raises(Unavailable):
        await run_transaction(store._database, transact, seconds=0.5)
    other = Store.open(ready_database)
    async with asyncio.timeout(30):
        await other._database["things"].update_one({"_id": "a"}, {"$inc": {"n": 10}})
    await other.close()
    assert await things.find_one({"_id": "a"}) == {"_id": "a", "n": 10}


async def test_one_whose_session_somebody_ends_begins_anew(store: Store, ready_database: str) -> None:
    """Whoever took its place thought it was gone."""
    things, other = store._database["things"], Store.open(ready_database)
    await things.insert_one({"_id": "a", "n": 0})
    own, tries = OwnSession(store._database), 0

    async def transact(session: AsyncClientSession) -> None:
        nonlocal tries
        tries += 1
        await things.update_one({"_id": "a"}, {"$inc": {"n": 1}}, session=session)
        if tries == 1:
            await end_session(other._database, own.name)
        await things.update_one({"_id": "a"}, {"$inc": {"n": 1}}, session=session)

    await run_transaction(store._database, transact, session=own)
    assert tries == 2
    assert await things.find_one({"_id": "a"}) == {"_id": "a", "n": 2}
    await own.close()
    await other.close()


async def test_nobody_else_gets_a_session_that_others_may_end(store: Store) -> None:
    """The driver keeps the sessions that were closed for whatever is asked next."""
    own = OwnSession(store._database)
    await own.close()
    async with store.messages.open_session() as writing:
        closed = writing.own.name
    following = OwnSession(store._database)
    assert following.name not in {own.name, closed}
    await following.close()


async def test_an_operation_that_is_interrupted_is_done_again(store: Store) -> None:
    tries = 0

    async def transact(session: AsyncClientSession) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OperationFailure("operation was interrupted", 11601)

    await run_transaction(store._database, transact)
    assert tries == 2
