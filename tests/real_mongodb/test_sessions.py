"""Sessions that others end, transactions that nobody ends, and a user with few rights."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure

from shared.audience.rules.audiences import KeyRange
from shared.core.errors import Unavailable
from shared.drivers.mongo.documents import translate_errors
from shared.drivers.mongo.transactions import OwnSession, end_session, run_transaction
from shared.jobs.rules.batches import Batch, BatchStatus
from shared.jobs.rules.jobs import JobStatus
from shared.messages.store_ledger import WriteResult
from shared.store import Store
from tests.jobs.made import a_job, added
from tests.real_mongodb.conftest import Admin, a_name, ask_or_skip
from tests.stack.mongodb import at_server
from tests.waiting import until

pytestmark = pytest.mark.real_mongodb

_PROGRAM = """
import sys, time, pymongo
client = pymongo.MongoClient(sys.argv[1])
session = client.start_session()
session.start_transaction()
jobs, change = client.get_default_database()["jobs"], {"$set": {"failure": "of a transaction that nobody ended"}}
changed = jobs.update_one({"_id": sys.argv[2]}, change, session=session)
print(session.session_id["id"].hex() if changed.matched_count else "no job", flush=True)
time.sleep(600)
"""
_SWEEP_SECONDS = 60
"""A server looks for transactions that are too old twice a minute."""


@pytest.mark.parametrize("moment", ["between two writes", "before the commit"])
async def test_a_transaction_whose_session_is_ended_begins_anew(store: Store, moment: str) -> None:
    things, own, id_, tries = store._database["things"], OwnSession(store._database), a_name(), 0
    await things.insert_one({"_id": id_, "n": 0})

    async def transact(session: AsyncClientSession) -> None:
        nonlocal tries
        tries += 1
        await things.update_one({"_id": id_}, {"$inc": {"n": 1}}, session=session)
        if tries == 1:
            await end_session(store._database, own.name)
        if moment == "between two writes":
            await things.update_one({"_id": id_}, {"$inc": {"n": 1}}, session=session)

    await run_transaction(store._database, transact, session=own)
    await own.close()
    assert await things.find_one({"_id": id_}) == {"_id": id_, "n": 2 if moment == "between two writes" else 1}
    assert tries == 2


async def test_a_cursor_of_an_ended_session_is_to_be_asked_for_again(store: Store) -> None:
    things, own, kind = store._database["things"], OwnSession(store._database), a_name()
    await things.insert_many([{"_id": f"{kind}/{number}", "kind": kind} for number in range(10)])
    found = things.find({"kind": kind}, session=own.session, batch_size=2)
    assert await anext(found)
    await end_session(store._database, own.name)
    with pytest.raises(Unavailable), translate_errors():
        assert len(await found.to_list()) < 9, "the server has not ended the cursor"
    await own.close()


async def test_an_operation_that_runs_in_an_ended_session_is_unavailable(store: Store, admin: Admin) -> None:
    things, own, id_ = store._database["things"], OwnSession(store._database), a_name()
    await things.insert_one({"_id": id_})
    slow = asyncio.create_task(things.find_one({"_id": id_, "$where": "sleep(10000) || true"}, session=own.session))
    running = [{"$currentOp": {"allUsers": True}}, {"$match": {"lsid.id": own.session.session_id["id"]}}]

    async def runs() -> bool:
        return slow.done() or bool(await (await admin.aggregate(running)).to_list())

    try:
        await until(runs, "the operation to run")
    except OperationFailure as error:
        slow.cancel()
        pytest.skip(f"this server does not say what it does: {error.code}")
    if slow.done():
        pytest.skip(f"this server runs no $where: {slow.exception()!r}")
    await end_session(store._database, own.name)
    with pytest.raises(Unavailable), translate_errors():
        await slow
    await own.close()


@pytest.mark.parametrize("ended", ["by its name", "by the server"])
async def test_a_killed_process_keeps_a_job_from_nobody_for_long(
    store: Store, prepared: str, admin: Admin, ended: str
) -> None:
    seconds = 20.0
    if ended == "by the server":
        limit = "transactionLifetimeLimitSeconds"
        answer = await ask_or_skip(admin, {"getParameter": 1, limit: 1}, "nothing ends a transaction by itself")
        if limit not in answer:
            pytest.skip("nothing ends a transaction by itself")
        seconds = answer[limit] + _SWEEP_SECONDS
    job_id = await added(store)
    with subprocess.Popen([sys.executable, "-c", _PROGRAM, prepared, job_id], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        name = (await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 60)).decode().strip()
        process.kill()
    assert len(name) == 32, name
    if ended == "by its name":
        await end_session(store._database, name)

    async def changes() -> bool:
        try:
            await store.jobs.touch(job_id)
        except Unavailable:
            return False
        return True

    await until(changes, "the job to be free", seconds)
    job = await store.jobs.get(job_id)
    assert job is not None
    assert job.failure == ""


async def test_a_user_who_may_read_and_write_one_database_may_do_all(server: str, admin: Admin) -> None:
    known = await admin.command("connectionStatus")
    if not known["authInfo"]["authenticatedUsers"]:
        pytest.skip("this server needs no login")
    name, password = a_name(), a_name()
    await admin.command("createUser", name, pwd=password, roles=[{"role": "readWrite", "db": name}])
    store = Store.open(at_server(server, name, login=f"{name}:{password}", authSource="admin"))
    try:
        await store.setup()
        comparison = await store.inspection.compare_indexes()
        assert (comparison.missing, comparison.hindering, comparison.collections) == ([], [], [])
        await store.inspection.end_no_session()
        await _do_some_of_all(store)
    finally:
        await store.close()
        await admin.client.drop_database(name)
        await admin.command("dropUser", name)


async def _do_some_of_all(store: Store) -> None:
    job: Any = a_job()
    await store.jobs.add(job)
    assert await store.jobs.move(job.id, to=JobStatus.PAUSED, only=frozenset(JobStatus), at=1) is not None
    async with store.messages.open_session() as session:
        owner = session.owner(1)
        batch = Batch(
            job_id=job.id, ordinal=0, range=KeyRange(0, 9), size=9, status=BatchStatus.SENDING, owner=owner, turn=1
        )
        assert await store.batches.add_page([batch])
        assert await store.messages.write(batch.id, owner, [], session) is WriteResult.DONE
        await store.messages.end_session(owner)
    assert (await store.batch_sums.totals([job.id]))[job.id].batches == 1
