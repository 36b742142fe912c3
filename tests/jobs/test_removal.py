"""Ended jobs are deleted with all that is stored of them, whoever dies on the way and whatever comes late."""

import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from shared.accounts.removal import AppRemoval
from shared.accounts.rules.apps import App
from shared.audience.rules.audiences import ByteRange, File, KeyRange
from shared.clock.rules.occurrences import once
from shared.core.errors import Conflict
from shared.core.instants import ns
from shared.jobs import retention as module
from shared.jobs.kinds import JobKinds
from shared.jobs.moves import fresh_incarnation
from shared.jobs.retention import JobBelongings, JobRemoval, JobRetention
from shared.jobs.rules.batches import Batch
from shared.jobs.rules.groups import make_group, zone_jobs
from shared.jobs.rules.jobs import Job, JobStage, JobStatus, job_owner
from shared.messages.kind import MessageKind
from shared.messages.rules.ledger import MessageState, entry_id
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.runtime.faults import arm
from shared.runtime.settings import SchedulerSettings
from shared.store import Store
from shared.time import DatabaseTime
from tests.jobs.kinds import Plain
from tests.jobs.made import a_job
from tests.messages.store.ended_jobs import OWNER, add_job, left, sent, tell
from tests.tiers import and_rarely

pytestmark = pytest.mark.native

FILE = File("carillon/jobs/players.csv", 1_000, "v1")
POINTS = ("deletion.after_begin", "deletion.after_batches", "deletion.before_end", "deletion.after_step")


@pytest.fixture(autouse=True)
async def _disarmed() -> AsyncIterator[None]:
    yield
    arm("")


def kinds_of(store: Store) -> JobKinds:
    return JobKinds([Plain(), MessageKind(store, *cast(Any, [None] * 3))])


def removal_of(store: Store, *, kept_days: float = 0) -> JobRemoval:
    async def tell_nobody(_: Sequence[str]) -> None: ...

    return JobRemoval(store, DatabaseTime(store), kinds_of(store), tell_nobody, kept_days=kept_days)


async def add_whole(store: Store, sizes: list[int], **fields: Any) -> Job:
    """A job of messages that has ended and left something of each sort."""
    job = await add_job(store, sizes, csv_path=FILE.path, context={"user": "Ana"}, **fields)
    assert await tell(store, entry_id(job.incarnation, 0, 1), MessageState.DELIVERED, "")
    await store.files.begin(job.file_plan_id, FILE, cut_records=1_000)
    await store.files.add_page(job.file_plan_id, 0, [ByteRange(3, 500, 100)])
    await hold_out(store, job)
    now = await store.now()
    await store.occurrences.add([once(job_owner(job.key, JobStage.FINISH), "0", now, accepted_at=now)])
    return job


async def hold_out(store: Store, job: Job) -> None:
    await store.held_out.put(Batch(job_id=job.key, ordinal=0, range=KeyRange(0, 1), size=1), ["ana"], owner=OWNER)


async def count_left(store: Store, job: Job) -> int:
    """How much is stored of the job, itself included."""
    owners = {"owner": {"$regex": f"^job/{job.key}/"}}
    counts = (await left(store, job)).values()
    counted: dict[str, dict[str, Any]] = {
        "held_out": {"job_id": job.key},
        "file_cuts": {"_id": {"$regex": f"^{job.key}/"}},
        "occurrences": owners,
    }
    others = [await store._database[name].count_documents(query) for name, query in counted.items()]
    alone = await store.jobs.view(job.key), await store.files.plan(job.file_plan_id)
    return sum(counts) + sum(others) + sum(each is not None for each in alone)


async def test_a_deleted_job_leaves_nothing_and_others_stay(store: Store) -> None:
    job, other = await add_whole(store, [20, 3]), await add_whole(store, [5])
    before = await count_left(store, other)
    assert await removal_of(store).remove(job, seconds=60)
    assert await count_left(store, job) == 0
    assert await count_left(store, other) == before > 9
    assert await removal_of(store).remove(job, seconds=60), "the same again does nothing"


async def test_an_open_job_is_not_deleted(store: Store) -> None:
    job = a_job(incarnation=fresh_incarnation())
    await store.jobs.add(job)
    with pytest.raises(Conflict, match="stop it"):
        await removal_of(store).remove(job, seconds=60)
    assert await store.jobs.view(job.key) == await store.jobs.view(job.id) is not None
    assert (await removal_of(store, kept_days=1e-9).run_once()).discarded == 0


@pytest.mark.parametrize("point", and_rarely("deletion.after_batches", rarely=(*POINTS[:1], *POINTS[2:])))
async def test_who_dies_while_deleting_is_followed_by_another(store: Store, point: str) -> None:
    job = await add_whole(store, [20, 3])
    arm(f"{point}=raise")
    with pytest.raises(Exception, match=point):
        await removal_of(store).remove(job, seconds=60)
    arm("")
    assert await store.reopening.reopen_job(job, [MessageState.SENT], at=1) is None, "nobody takes it up again"
    await removal_of(store).run_once()
    assert await count_left(store, job) == 0


async def test_a_request_is_bounded_and_schedulers_go_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEPS", 1)
    monkeypatch.setattr("shared.messages.kind._FORGOTTEN_AT_ONCE", 10)
    job = await add_whole(store, [20, 20])
    assert not await removal_of(store).remove(job, seconds=-1)
    rest = await left(store, job)
    assert (rest["messages"], rest["batches"]) == (30, 3), "children first, the job last"
    assert (await removal_of(store).run_once()).discarded == 1
    assert await count_left(store, job) == 0


async def test_what_comes_late_finds_nothing_and_leaves_nothing(store: Store) -> None:
    job = await add_whole(store, [20, 3])
    await removal_of(store).remove(job, seconds=60)
    change = EntryChange(None, sent(job, 0, 30))
    batch = Batch(job_id=job.key, ordinal=0, range=KeyRange(0, 1), size=20, owner=OWNER)
    assert await store.messages.write(batch.id, OWNER, [change]) is WriteResult.LOST
    assert not await tell(store, entry_id(job.incarnation, 0, 2), MessageState.DELIVERED, "")
    assert await store.batches.take(batch, owner=OWNER) is None
    assert await store.batches.add_page([batch])  # a planner that stood still
    await hold_out(store, job)
    retention = JobRetention(store, DatabaseTime(store), kinds_of(store), SchedulerSettings())
    await retention.run_once()
    assert await count_left(store, job) == 2, "a server that is behind may not know the job yet"
    await retention.run_once()
    assert await count_left(store, job) == 0


async def test_jobs_are_forgotten_after_their_time(store: Store) -> None:
    old, young = await add_whole(store, [3]), await add_whole(store, [3])
    now = await store.now()
    for job, days in ((old, 31), (young, 29)):
        await store.jobs._jobs.update_one({"_id": job.id}, {"$set": {"changed_at": now - timedelta(days=days)}})
    ended = {"status": JobStatus.COMPLETED, "open": False}
    imported = a_job(created_at=ns(now - timedelta(days=31)), **ended), a_job(created_at=ns(now), **ended)
    await store.closed_jobs.add(imported)
    assert (await removal_of(store).run_once()).discarded == 0, "by default for ever"
    assert (await removal_of(store, kept_days=30).run_once()).discarded == 2
    assert await count_left(store, old) == 0
    assert await store.jobs.view(young.key) is not None
    assert [await store.jobs.view(job.id) is not None for job in imported] == [False, True]


async def test_what_another_process_removes_meanwhile_is_gone(store: Store) -> None:
    job = await add_whole(store, [3])
    steps = 0

    async def remove_first(keys: Sequence[str]) -> None:
        nonlocal steps
        steps += 1
        await store.closed_jobs.remove(keys)

    removal = JobRemoval(store, DatabaseTime(store), kinds_of(store), remove_first)
    assert await removal.remove(job, seconds=60)
    assert steps == 1


async def test_a_job_of_a_later_version_stays_and_others_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_JOBS", 1)
    monkeypatch.setattr("shared.jobs.retention._JOBS", 1)
    unknown, other = await add_whole(store, [3]), await add_whole(store, [3])
    await store.jobs._jobs.update_one({"_id": unknown.id}, {"$set": {"service": "fax"}})
    retention = JobRetention(store, DatabaseTime(store), kinds_of(store), SchedulerSettings(batch_retention_days=1e-4))
    old = await store.now() - timedelta(days=1)
    await store.jobs._jobs.update_many({}, {"$set": {"kept_since": old}})
    await retention.run_once()
    assert await store.jobs._jobs.distinct("_id", {"kept_since": {"$exists": True}}) == [unknown.id]
    for job in (unknown, other):
        assert await store.closed_jobs.begin_removal(job.key)
    before = await count_left(store, unknown)
    with capture_logs() as logs:
        assert (await removal_of(store).run_once()).discarded == 1
    assert [each["services"] for each in logs if "services" in each] == [["fax"]]
    assert await count_left(store, other) == 0
    assert await count_left(store, unknown) == before > 9


async def test_an_app_with_a_job_of_a_later_version_does_not_stop_the_deletion_of_others(store: Store) -> None:
    job = await add_whole(store, [3])
    await store.jobs._jobs.update_one({"_id": job.id}, {"$set": {"service": "fax"}})
    for app_id in (job.app_id, "b"):
        await store.apps.add(App(id=app_id, name=app_id, bundle_id=app_id, created_by="me", created_at=1, updated_at=1))
        await store.apps.begin_removal(app_id)
        await store.apps.confirm_removal(app_id)
    removal = AppRemoval(store, [JobBelongings(store, removal_of(store))])
    assert (await removal.run_once()).discarded == 1
    assert await store.apps.with_ids(["b"]) == {}
    assert await store.jobs.view(job.key) is not None


async def test_a_group_goes_with_its_last_job(store: Store) -> None:
    model = a_job(
        incarnation=fresh_incarnation(), localized=True, offsets=("+0100",), app_id="zones", group_id=str(uuid.uuid4())
    )
    group = make_group(model, [("+0100", 1), ("+0200", 1), ("rest", 1)])
    await store.groups.add(group)
    jobs = zone_jobs(group)
    await store.jobs.add_missing(jobs)
    await store.jobs._jobs.update_many({"app_id": "zones"}, {"$set": {"open": False, "status": "completed"}})
    with pytest.raises(Conflict, match="still being made"):
        await removal_of(store).remove(jobs[0], seconds=60)
    assert (await removal_of(store, kept_days=1e-9).run_once()).discarded == 0, "upkeep would make them again"
    await store.groups.mark_complete(group.id)
    for job in jobs:
        assert await store.groups.get(group.id) is not None
        assert await removal_of(store).remove(job, seconds=60)
    assert await store.groups.get(group.id) is None
