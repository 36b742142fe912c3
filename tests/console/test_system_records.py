"""The audit is told once of each thing, however many processes tell it, and whenever one of them dies."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from shared.console.audit import SILENT_FOR, ConsoleRetention, SystemRecords
from shared.console.rules.audit import AuditRecord
from shared.console.rules.processes import GONE_AFTER
from shared.core.errors import Unavailable
from shared.jobs.rules.events import TRIP, Milestone
from shared.jobs.rules.jobs import JobStatus
from shared.store import Store
from shared.time import DatabaseTime
from tests.console.rules.test_processes import a_process
from tests.jobs.made import added

pytestmark = pytest.mark.native

RUNNING = frozenset({JobStatus.RUNNING})


class LaterTime(DatabaseTime):
    """The database's time, and as much more as a test says."""

    later = timedelta(0)

    async def now(self) -> datetime:
        return await super().now() + self.later


@pytest.fixture
def time(store: Store) -> LaterTime:
    return LaterTime(store)


@pytest.fixture
def records(store: Store, time: LaterTime) -> SystemRecords:
    return SystemRecords(store, time, role="scheduler")


async def trip(store: Store) -> str:
    """A job that has tripped."""
    job_id = await added(store)
    milestone = Milestone(TRIP, await store.now(), "worker", "3 of 10 batches failed")
    assert await store.jobs.move(job_id, to=JobStatus.TRIPPED, only=RUNNING, at=1, milestone=milestone) is not None
    return job_id


async def told(store: Store, act: str) -> list[AuditRecord]:
    return list(await store.audit.page(act=act, limit=1_000))


async def test_many_who_tell_at_once_tell_once(store: Store, time: LaterTime) -> None:
    jobs = {await trip(store) for _ in range(20)}
    tellers = [SystemRecords(store, time, role="scheduler") for _ in range(5)]
    await asyncio.gather(*(teller.run_once() for teller in tellers))
    records = await told(store, TRIP)
    assert (len(records), {record.on.id for record in records}) == (20, jobs)
    assert (await tellers[0].run_once()).claimed == 0


async def test_whoever_dies_before_it_is_noted_leaves_what_is_told_again_and_stands_there_once(
    store: Store, records: SystemRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trip(store)

    async def die(*_: Any) -> None:
        raise Unavailable("died")

    for _ in range(2):
        with monkeypatch.context() as dying:
            dying.setattr(store.milestones, "take", die)
            with pytest.raises(Unavailable):
                await records.run_once()
    assert (await records.run_once()).claimed == 1
    [record] = await told(store, TRIP)
    assert (record.who.name, record.reason) == ("worker", "3 of 10 batches failed")


async def test_more_than_one_page_is_told(
    store: Store, records: SystemRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.console.audit._AT_ONCE", 2)
    for _ in range(5):
        await trip(store)
    assert (await records.run_once()).claimed == 5
    assert len(await told(store, TRIP)) == 5


async def test_jobs_that_are_about_to_be_forgotten_are_told_of_first(store: Store, records: SystemRecords) -> None:
    wanted, other = await trip(store), await trip(store)
    await records.tell_of_jobs([wanted])
    assert [record.on.id for record in await told(store, TRIP)] == [wanted]
    await records.run_once()
    assert {record.on.id for record in await told(store, TRIP)} == {wanted, other}


async def test_a_process_is_gone_once_whoever_sees_it(store: Store, time: LaterTime) -> None:
    await store.processes.tell(a_process(id="dead"))
    await store.processes.tell(a_process(id="alive"))
    tellers = [SystemRecords(store, time, role="scheduler") for _ in range(4)]

    async def look() -> Sequence[AuditRecord]:
        await asyncio.gather(*(teller.run_once() for teller in tellers))
        return await told(store, "process.gone")

    time.later = GONE_AFTER - timedelta(seconds=30)
    assert await look() == []
    time.later = GONE_AFTER + timedelta(seconds=30)
    await keep_alive(store, time, "alive")
    assert await look() == []
    time.later += SILENT_FOR
    [record] = await look()
    assert (record.on.id, record.who.name) == ("dead", "scheduler")
    assert await look() == [record]
    assert (await tellers[0].run_once()).claimed == 0


async def keep_alive(store: Store, time: LaterTime, process_id: str) -> None:
    """Have it heard of at a time that lies ahead."""
    seen = {"$set": {"seen_at": await time.now()}}
    await store.processes._processes.update_one({"_id": process_id}, seen)


async def test_a_store_that_was_away_makes_nobody_gone(store: Store, time: LaterTime, records: SystemRecords) -> None:
    await store.processes.tell(a_process(id="cut off"))
    time.later = timedelta(minutes=10)
    await records.run_once()
    await keep_alive(store, time, "cut off")
    time.later += SILENT_FOR
    await records.run_once()
    assert await told(store, "process.gone") == []


async def test_one_that_comes_back_and_goes_again_is_gone_twice(
    store: Store, time: LaterTime, records: SystemRecords
) -> None:
    await store.processes.tell(a_process(id="frozen"))
    for times in (1, 2):
        time.later += GONE_AFTER + timedelta(seconds=1)
        await records.run_once()
        time.later += SILENT_FOR
        await records.run_once()
        assert len(await told(store, "process.gone")) == times
        await keep_alive(store, time, "frozen")


async def test_no_process_is_forgotten_before_it_is_told_of(
    store: Store, time: LaterTime, records: SystemRecords
) -> None:
    await store.processes.tell(a_process(id="dead"))
    retention = ConsoleRetention(store, time, audit_days=400)
    time.later = timedelta(hours=2)
    assert (await retention.run_once()).discarded == 0
    await records.run_once()
    time.later += SILENT_FOR
    await records.run_once()
    assert (await retention.run_once()).discarded == 1
    assert await store.processes.list() == []
    assert len(await told(store, "process.gone")) == 1
