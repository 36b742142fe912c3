"""Connections that break, a primary that steps down, secondaries that stand still, and a server that is killed."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from services.worker.messages.entries import EntryWriter, Note, Prepared, Purpose
from shared.audience.rules.audiences import KeyRange
from shared.clock.rules.occurrences import Occurrence, once
from shared.clock.store_occurrences import Visible
from shared.core.documents import Position
from shared.core.errors import Unavailable
from shared.jobs.rules.batches import Batch, BatchStatus
from shared.jobs.rules.events import PLAN, Event, EventState
from shared.jobs.rules.jobs import Job, JobStatus
from shared.messages.rules.answers import CallAccepted
from shared.messages.rules.ledger import Message, MessageState, News, entry_id, hear, write_ahead
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.store import Store
from tests.jobs.made import a_job, added
from tests.real_mongodb.conftest import Admin, Document, a_name, ask_or_skip
from tests.stack.mongodb import at_server
from tests.waiting import until

pytestmark = pytest.mark.real_mongodb

RESTART_VARIABLE = "CARILLON_TEST_MONGO_RESTART"
"""A shell command that kills the server with SIGKILL and starts it again."""
KILLS = 60
_BACK_SECONDS = 60
_NEEDS_TEST_COMMANDS = "start mongod with --setParameter enableTestCommands=1"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Subject:
    """What the writes below write to, and what they must have made of it."""

    def __init__(self, store: Store, job: Job, occurrence: Occurrence) -> None:
        self.store, self.job, self.occurrence = store, job, occurrence
        self.partition = a_name()

    async def insert(self) -> None:
        await self.store.occurrences.add([self.occurrence])

    async def claim(self) -> None:
        until_ = Visible(self.occurrence.due)
        token = "t" * 24
        await self.store.occurrences.claim(self.occurrence.shard, token, until_, leased_until=NOON + 2 * HOUR)

    async def complete(self) -> None:
        await self.store.occurrences.complete([replace(self.occurrence, token="t" * 24)])

    async def note(self) -> None:
        await self.store.jobs.note_first(self.job.id, Event(PLAN, EventState.RUNNING, "starting", 1))

    async def pause(self) -> None:
        await self.store.jobs.move(self.job.id, to=JobStatus.PAUSED, only=frozenset({JobStatus.RUNNING}), at=1)

    async def count(self) -> None:
        await self.store.feedbacks.flush(self.partition, Position(0), Position(1), {(self.job.id, "ack"): 1})

    async def check(self) -> None:
        job = await self.store.jobs.get(self.job.id)
        assert job is not None
        assert (job.status, job.feedbacks) == (JobStatus.PAUSED, {"ack": 1})
        assert [event.state for event in job.events] == [EventState.RUNNING]
        assert await self.store.occurrences.find_claimed([self.occurrence.id]) == set()


WRITES: list[Callable[[Subject], Awaitable[None]]] = [
    Subject.insert,
    Subject.claim,
    Subject.complete,
    Subject.note,
    Subject.pause,
    Subject.count,
]


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_write_whose_connection_breaks_happens_once(store: Store, admin: Admin, times: int) -> None:
    """Insert, update of many, delete of many, update, findAndModify and a transaction: each is stored or `Unavailable`,
    and may be repeated."""
    job = a_job(status=JobStatus.RUNNING)
    await store.jobs.add(job)
    subject = Subject(store, job, once(f"schedule/ns/{a_name()}", "g", NOON, accepted_at=NOON - HOUR))
    failing = {
        "failCommands": ["insert", "update", "delete", "findAndModify", "commitTransaction"],
        "closeConnection": True,
        "appName": "carillon",
    }
    for write in WRITES:
        point = {"configureFailPoint": "failCommand", "mode": {"times": times}, "data": failing}
        await ask_or_skip(admin, point, _NEEDS_TEST_COMMANDS)
        for _ in range(times + 1):
            try:
                await write(subject)
                break
            except Unavailable:
                continue
        ended = await admin.command({"configureFailPoint": "failCommand", "mode": "off"})
        if "count" not in ended:
            pytest.skip("this server does not say how often it has failed")
        assert ended["count"], "nothing has failed"
        await write(subject)
    await subject.check()


async def test_a_primary_that_steps_down_under_load_costs_nothing(store: Store, admin: Admin) -> None:
    """No error but `Unavailable` reaches a caller, and all is counted once."""
    await _skip_without_three_members(admin)
    job_id, partitions, over = await added(store), [f"{a_name()}/{number}" for number in range(8)], asyncio.Event()
    counted = dict.fromkeys(partitions, 0)

    async def count(partition: str) -> None:
        while not over.is_set():
            here = Position(counted[partition])
            try:
                await store.feedbacks.flush(partition, here, Position(here.offset + 1), {(job_id, "ack"): 1})
                found = await store.feedbacks.positions([partition])
            except Unavailable:
                continue
            counted[partition] = found[partition].offset if partition in found else 0

    async def step_down() -> None:
        for _ in range(3):
            await asyncio.sleep(5)
            with suppress(PyMongoError):  # it hangs up, or nobody has caught up yet
                await admin.command("replSetStepDown", 10, secondaryCatchUpPeriodSecs=10)
            await until(lambda: _answers(store), "a primary", _BACK_SECONDS)
        over.set()

    async with asyncio.TaskGroup() as group:
        for partition in partitions:
            group.create_task(count(partition))
        group.create_task(step_down())
    await until(lambda: _answers(store), "a primary", _BACK_SECONDS)
    positions = await store.feedbacks.positions(partitions)
    job = await store.jobs.get(job_id)
    assert job is not None
    assert job.feedbacks == {"ack": sum(position.offset for position in positions.values())}
    assert sum(job.feedbacks.values()) > 0


async def test_a_worker_waits_while_no_majority_takes_writes(store: Store, server: str, admin: Admin) -> None:
    """Two secondaries stand still for 15 s: the callback's change is there and no majority read shows it."""
    await _skip_without_three_members(admin)
    incarnation = a_name()
    job_key, span = f"job.{incarnation}", KeyRange(0, 9)
    batch = Batch(job_id=job_key, ordinal=0, range=span, size=9, status=BatchStatus.SENDING, owner="w1", turn=1)
    assert await store.batches.add_page([batch])
    blank = Message(id=entry_id(incarnation, 0, 0), app_id="app", credential_id="post", to="ana@example.com")
    entry = write_ahead(blank, owner="w1", until=NOON)
    assert await store.messages.write(batch.id, "w1", [EntryChange(None, entry)]) is WriteResult.DONE
    heard = hear(entry, News(state=MessageState.DELIVERED, at=NOON, attempt=1))
    assert heard is not None
    pauses: list[float] = []

    async def rest(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(seconds)

    async with _secondaries_that_stand_still(server, admin):
        with pytest.raises(Unavailable):
            await store.messages.fold([EntryChange(entry, heard)])
        writer = EntryWriter(store, batch_id=batch.id, owner="w1", rest=rest)
        given = CallAccepted("p-1")
        note = Note(Prepared(entry, {}, is_stored=True), Purpose.ANSWER, given=given, attempt=1, at=NOON)
        began = time.monotonic()
        writing = asyncio.create_task(writer.write([note]))
        await asyncio.sleep(15)
    await asyncio.wait_for(writing, _BACK_SECONDS)
    assert len(pauses) < 10 + 2 * (time.monotonic() - began), "it has spun"
    assert (await store.message_sums.count(batch.job_id)).tally in ({"delivered": 1}, {"sent": 1})


@pytest.mark.alone
async def test_a_server_that_is_killed_sixty_times_keeps_what_it_has_acknowledged(prepared: str) -> None:
    command = os.environ.get(RESTART_VARIABLE, "")
    if not command:
        pytest.skip(f"{RESTART_VARIABLE} names no command that kills the server and starts it again")
    store, kind, acknowledged = Store.open(prepared, timeout_seconds=5), a_name(), set[str]()
    things, over = store._database["things"], asyncio.Event()

    async def write(number: int) -> None:
        count = 0
        while not over.is_set():
            id_ = f"{kind}/{number}/{count}"
            count += 1
            try:
                await things.insert_one({"_id": id_})
            except PyMongoError:
                await asyncio.sleep(0.05)
                continue
            acknowledged.add(id_)

    def has_more(before: int) -> bool:
        return len(acknowledged) > before + 50

    async def kill() -> None:
        for _ in range(KILLS):
            await until(partial(has_more, len(acknowledged)), "writes", _BACK_SECONDS)
            killing = await asyncio.create_subprocess_shell(command)
            assert await asyncio.wait_for(killing.wait(), _BACK_SECONDS) == 0
            await until(lambda: _answers(store), "the server", _BACK_SECONDS)
        over.set()

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(write(number))
        group.create_task(kill())
    found = {document["_id"] async for document in things.find({"_id": {"$in": sorted(acknowledged)}})}
    assert acknowledged - found == set()
    await store.close()


async def _answers(store: Store) -> bool:
    try:
        await store.inspection.write_nothing()
    except Unavailable:
        return False
    return True


async def _skip_without_three_members(admin: Admin) -> Document:
    hello: Document = await admin.command("hello")
    if len(hello.get("hosts", ())) < 3:
        pytest.skip("this is no replica set of three members")
    return hello


@asynccontextmanager
async def _secondaries_that_stand_still(server: str, admin: Admin) -> AsyncIterator[None]:
    hello = await admin.command("hello")
    others = [host for host in hello["hosts"] if host != hello["primary"]]
    clients: list[AsyncMongoClient[Any]] = [
        AsyncMongoClient(at_server(server, hosts=host, directConnection="true"), timeoutMS=20_000) for host in others
    ]
    stopped: list[AsyncMongoClient[Any]] = []
    try:
        for client in clients:
            point = {"configureFailPoint": "stopReplProducer", "mode": "alwaysOn"}
            await ask_or_skip(client.admin, point, _NEEDS_TEST_COMMANDS)
            stopped.append(client)
        yield
    finally:
        for client in stopped:
            await client.admin.command({"configureFailPoint": "stopReplProducer", "mode": "off"})
        for client in clients:
            await client.close()
