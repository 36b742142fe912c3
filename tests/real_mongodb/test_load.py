"""Many writers at once, large collections, and a server that is far away."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.worker.messages import in_hand
from services.worker.messages.in_hand import BatchesInHand
from shared.audience.rules.audiences import KeyRange
from shared.clock.rules.occurrences import once
from shared.clock.store_occurrences import Visible, _document
from shared.core.documents import Position
from shared.core.ids import Idempotency
from shared.jobs import store_batches as batch_documents
from shared.jobs import store_jobs as job_documents
from shared.jobs.rules.batches import Batch, BatchStatus
from shared.jobs.rules.jobs import JobStatus
from shared.messages.rules.answers import CallAccepted
from shared.messages.rules.ledger import Message, MessageState, News, answer, entry_id, hear, write_ahead
from shared.messages.store_ledger import EntryChange, WriteResult, _codec
from shared.store import Store
from tests.clocks import ManualClock
from tests.commands import count_commands
from tests.conftest import drop_mongo_database
from tests.jobs.made import a_job, added
from tests.real_mongodb.conftest import Admin, Document, a_name
from tests.stack.mongodb import at_server
from tests.stack.server import run_apart

pytestmark = pytest.mark.real_mongodb

DOCUMENTS = 200_000
"""In each large collection."""
MOST_KEYS = 1_000
_AT_ONCE = 5_000
_JOBS = 250
_BATCHES, _MESSAGES = DOCUMENTS // _JOBS, 100
_NOT_EXPLAINED = {
    "lsid",
    "$db",
    "$clusterTime",
    "$readPreference",
    "txnNumber",
    "readConcern",
    "writeConcern",
    "maxTimeMS",
}
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


async def add_batch(store: Store, job_id: str, ordinal: int, owner: str) -> Batch:
    batch = Batch(
        job_id=job_id, ordinal=ordinal, range=KeyRange(0, 9), size=9, status=BatchStatus.SENDING, owner=owner, turn=1
    )
    assert await store.batches.add_page([batch])
    return batch


def a_message(incarnation: str, ordinal: int, row: int) -> Message:
    to = f"ana{row}.{ordinal}.{incarnation}@example.com"
    return Message(id=entry_id(incarnation, ordinal, row), app_id="app", credential_id="post", to=to)


async def test_eight_writers_of_tallies_feedbacks_and_callbacks_count_all_once(store: Store) -> None:
    """Each worker writes ahead and answers in a batch of its own, callbacks tell of all batches, and feedback of the
    one job comes from eight partitions."""
    incarnation, writers, rows, steps = a_name(), range(8), range(20), range(10)
    job_id = await added(store)

    async def send(ordinal: int) -> None:
        async with store.messages.open_session() as session:
            batch = await add_batch(store, f"job.{incarnation}", ordinal, session.owner(1))
            blanks = [a_message(incarnation, ordinal, row) for row in rows]
            ahead = [write_ahead(blank, owner=batch.owner, until=NOON) for blank in blanks]
            fresh = [EntryChange(None, entry) for entry in ahead]
            assert await store.messages.write(batch.id, batch.owner, fresh, session) is WriteResult.DONE
            for entry in ahead:
                while True:
                    before = (await store.messages.with_ids([entry.id]))[entry.id]
                    after = answer(before, 1, CallAccepted(f"p-{entry.id}"), at=NOON, attempts=3)
                    changes = [] if after is None else [EntryChange(before, after)]
                    if await store.messages.write(batch.id, batch.owner, changes, session) is WriteResult.DONE:
                        break

    async def hear_of_all(seed: int) -> None:
        ids = [entry_id(incarnation, ordinal, row) for ordinal in writers for row in rows]
        chance = random.Random(seed)
        chance.shuffle(ids)
        left = set(ids)
        while left:
            found = await store.messages.with_ids([id_ for id_ in ids if id_ in left][:5])
            news = News(state=MessageState.DELIVERED, at=NOON, attempt=1)
            heard = {id_: hear(entry, news) for id_, entry in found.items()}
            changes = [EntryChange(found[id_], after) for id_, after in heard.items() if after is not None]
            if not changes or await store.messages.fold(changes) is WriteResult.DONE:
                left -= set(found)
            if not found:
                await asyncio.sleep(0.05)
                chance.shuffle(ids)

    async def count(partition: int) -> None:
        for step in steps:
            here, there = Position(step), Position(step + 1)
            assert await store.feedbacks.flush(f"{incarnation}/{partition}", here, there, {(job_id, "ack"): 1})

    async with asyncio.TaskGroup() as group:
        for number in writers:
            group.create_task(send(number))
            group.create_task(hear_of_all(number))
            group.create_task(count(number))
    tally = (await store.message_sums.count(f"job.{incarnation}")).tally
    assert tally == {"delivered": len(writers) * len(rows)}
    job = await store.jobs.get(job_id)
    assert job is not None
    assert job.feedbacks == {"ack": len(writers) * len(steps)}


async def test_fifty_equal_first_uses_of_a_key_are_one(store: Store) -> None:
    key = a_name()
    uses = await asyncio.gather(
        *(store.idempotency.claim(Idempotency(key, "digest"), made=str(number)) for number in range(50))
    )
    assert len({use.made for use in uses}) == 1


async def test_fifty_first_wishes_for_a_lease_are_all_counted(store: Store) -> None:
    credential_id = a_name()
    await asyncio.gather(*(store.singles.want(credential_id) for _ in range(50)))
    lease = await store.singles.get_lease(credential_id)
    assert lease is not None
    assert lease.wanted == 50


async def test_fifty_first_steps_of_a_limit_are_one_document(store: Store) -> None:
    namespace, now = a_name(), await store.now()
    granted = await asyncio.gather(*(store.send_limits.take(namespace, 1, rate=1.0, now=now) for _ in range(50)))
    assert len(granted) == 50
    assert await store._database["callers"].count_documents({"_id": namespace}) == 1


async def test_an_index_is_built_for_longer_than_a_call_may_take(server: str) -> None:
    name = a_name()
    url = at_server(server, name)
    hurried = Store.open(url, timeout_seconds=1)
    try:
        await _fill(url, "occurrences", (_document(each) for each in _occurrences()))
        await hurried.setup()
        assert (await hurried.inspection.compare_indexes()).missing == []
    finally:
        await hurried.close()
        drop_mongo_database(server, name)


@pytest.fixture(scope="module")
def large(server: str) -> Iterator[str]:
    """The URL of a database with large collections."""
    name = a_name()
    url = at_server(server, name)
    run_apart(_fill_all(url))
    yield url
    drop_mongo_database(server, name)


async def test_every_query_of_a_large_collection_goes_by_an_index(
    large: str, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of each command that was sent sorts nothing, and looks at few keys."""
    commands = count_commands(monkeypatch)
    store = Store.open(large)
    await _ask_much(store)
    database = store._database.name
    await store.close()
    explained = dict.fromkeys(("find", "aggregate", "update", "delete", "findAndModify"), 0)
    faults = []
    for sent in commands.sent:
        name = next(iter(sent))
        if name not in explained or "getMore" in sent or (sent.get("txnNumber") and sent.get("autocommit") is False):
            continue
        command = {field: value for field, value in sent.items() if field not in _NOT_EXPLAINED}
        for one in _one_by_one(name, command):
            plan = await admin.client[database].command("explain", one, verbosity="executionStats")
            explained[name] += 1
            if wrong := _faults_of(plan, may_sort=name == "aggregate"):
                faults.append((one, wrong))
    assert faults == []
    assert all(explained.values()), explained


@pytest.mark.alone
async def test_four_hundred_batches_show_signs_of_life_across_twenty_milliseconds(
    prepared: str, store: Store, admin: Admin
) -> None:
    """Each is seen to live within the time after which others would take it."""
    job_id = await added(store)
    async with _far_away(prepared, admin) as far, AsyncExitStack() as sessions:
        opened = [await sessions.enter_async_context(far.messages.open_session()) for _ in range(400)]
        batches = [await add_batch(store, job_id, n, session.owner(1)) for n, session in enumerate(opened)]
        holder = BatchesInHand(far, _NoBounces(), ManualClock(), most=500)  # type: ignore[arg-type]
        quietest, shown = timedelta(), []
        with ExitStack() as held:
            for batch, session in zip(batches, opened, strict=True):
                held.enter_context(holder.hold(batch, session))
            for _ in range(30):
                await asyncio.sleep(0.5)
                found = await store._database["batches"].find({"job_id": job_id}, {"changed_at": 1}).to_list()
                now = await store.now()
                shown = [document["changed_at"] for document in found if document.get("changed_at") is not None]
                quietest = max(quietest, *(now - at for at in shown), timedelta())
        assert len(shown) == len(batches)
    assert quietest.total_seconds() < in_hand._SILENT_SECONDS


class _NoBounces:
    async def look(self, _: str) -> None:
        """No message bounces."""


@asynccontextmanager
async def _far_away(url: str, admin: Admin) -> AsyncIterator[Store]:
    """A store whose server answers 20 ms late, on each connection by itself."""
    await admin.command("ping")
    primary = await admin.client.primary or await admin.client.address
    assert primary is not None
    writers: list[asyncio.StreamWriter] = []
    ways: set[asyncio.Task[None]] = set()

    def pass_on(sink: asyncio.StreamWriter, data: bytes) -> None:
        if not sink.is_closing():
            sink.write(data)

    async def forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        while data := await source.read(1 << 16):
            loop.call_later(seconds, pass_on, sink, data)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, sink = await asyncio.open_connection(*primary)
        writers.extend((writer, sink))
        for source, target, seconds in ((reader, sink, 0.0), (there, writer, 0.02)):
            ways.add(asyncio.create_task(forward(source, target, seconds)))

    proxy = await asyncio.start_server(accept, "127.0.0.1", 0)
    hosts = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    name = url.partition("?")[0].rpartition("/")[2]
    far = Store.open(at_server(url, name, hosts=hosts, directConnection="true", maxPoolSize="300"))
    try:
        yield far
    finally:
        await far.close()
        proxy.close()
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()


def _occurrences() -> Iterator[Any]:
    for number in range(DOCUMENTS):
        yield once(f"schedule/ns{number % 7}/s{number // 10}", "g", NOON + number * SECOND, accepted_at=NOON - HOUR)


def _jobs() -> Iterator[Any]:
    for number in range(DOCUMENTS):
        status = JobStatus.RUNNING if number < _JOBS else JobStatus.COMPLETED
        yield a_job(app_id=f"app{number % 500}", group_id=f"g{number // 5}", status=status, created_at=number + 1)


def _batches() -> Iterator[Batch]:
    for number in range(DOCUMENTS):
        span = KeyRange(0, 9)
        yield Batch(job_id=f"job.i{number // _BATCHES}", ordinal=number % _BATCHES, range=span, size=9)


def _messages() -> Iterator[Message]:
    for number in range(DOCUMENTS):
        batch, row = divmod(number, _MESSAGES)
        yield a_message(f"i{batch // 20}", batch % 20, row)


async def _fill(url: str, collection: str, documents: Iterator[Document]) -> None:
    store = Store.open(url, timeout_seconds=120)
    some: list[Document] = []
    for document in documents:
        some.append(document)
        if len(some) == _AT_ONCE:
            await store._database[collection].insert_many(some, ordered=False)
            some = []
    await store.close()


async def _fill_all(url: str) -> None:
    store = Store.open(url)
    await store.setup()
    await store.close()
    await _fill(url, "occurrences", (_document(each) for each in _occurrences()))
    await _fill(url, "jobs", (job_documents.document_of(each) for each in _jobs()))
    await _fill(url, "batches", (batch_documents.document_of(each) for each in _batches()))
    await _fill(url, "messages", (_codec.document(each) for each in _messages()))


async def _ask_much(store: Store) -> None:
    """What upkeep, workers and pages ask for all the time."""
    visible, until = Visible(NOON + 20 * SECOND), NOON + HOUR
    await store.occurrences.heads(visible)
    for shard in range(4):
        await store.occurrences.claim(shard, f"token{shard}", visible, leased_until=until)
    claimed = await store.occurrences.read("token0", limit=100)
    await store.occurrences.ours(claimed)
    await store.occurrences.complete(claimed)
    await store.occurrences.find_upcoming("schedule/ns1/s1", 10)
    await store.occurrences.find_held_back(0, limit=10)
    await store.occurrences.find_due("schedule/ns1/", before=NOON + HOUR, look_at=500, limit=10)
    await store.occurrences.remove_of("schedule/ns1/s1")
    jobs = await store.job_lists.page(app_id="app3", limit=50)
    keys = [job.key for job in jobs]
    await store.job_lists.page(limit=50)
    for app_id in ("", "app3"):
        await store.job_lists.page(app_id=app_id, status=JobStatus.COMPLETED, failed=True, limit=50)
    await store.job_lists.page_of_app("app3", limit=50)
    await store.job_lists.page_of_app("app3", after=(5, keys[0]), limit=50)
    await store.jobs.with_ids(keys)
    await store.message_jobs.get_standings(keys)
    await store.jobs.move(keys[0], to=JobStatus.PAUSED, only=frozenset(JobStatus), at=1)
    await store.milestones.find(limit=10)
    await store.open_jobs.has_open("app3")
    await store.batches.get("job.i3", 7)
    await store.batches.queue("job.i3", 7)
    await store.message_batches.find_planned("job.i3", since=700, now=NOON)
    await store.batch_sums.page("job.i3", limit=20)
    await store.batch_sums.totals(["job.i3"])
    await store.messages.read_batch("i3", 7)
    await store.message_lists.page("i3", limit=50)
    await store.message_lists.find_recipient("app", ["ana1.2.i3@example.com"], limit=10)
    await store.messages.with_refs(["post/p-1"])
    await store.singles.find_due("post", now=NOON, limit=100)


def _one_by_one(name: str, command: Document) -> Iterator[Document]:
    """A command with one of its updates or deletes at a time: a server explains no more."""
    parts = {"update": "updates", "delete": "deletes"}.get(name)
    if parts is None or parts not in command:
        yield command
        return
    for part in command[parts]:
        yield command | {parts: [part]}


def _faults_of(plan: Any, *, may_sort: bool) -> list[str]:
    """Whether it sorts, reads a whole collection, or looks at many keys. An aggregate may sort the little that is left
    of these."""
    faults = []
    for document in _documents_in(plan):
        if (stage := document.get("stage")) in {"COLLSCAN"} | (set() if may_sort else {"SORT"}):
            faults.append(str(stage))
        if (keys := document.get("totalKeysExamined", 0)) > MOST_KEYS:
            faults.append(f"{keys} keys")
    return faults


def _documents_in(value: Any) -> Iterator[Document]:
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from _documents_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from _documents_in(part)
