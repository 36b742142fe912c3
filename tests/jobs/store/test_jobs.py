"""Jobs in the database: what goes in comes out, and every move is a compare-and-set."""

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.audience.rules.audiences import PushTable
from shared.core.errors import Conflict, Invalid
from shared.core.ids import Idempotency
from shared.core.instants import from_ms
from shared.jobs.rules.batches import Receipt, Totals
from shared.jobs.rules.events import PLAN, Event, EventState
from shared.jobs.rules.jobs import PAUSABLE, RESUMABLE, STOPPABLE, Job, JobStatus
from shared.jobs.rules.templates import Template
from shared.push.rules.records import APNS
from shared.store import Store
from tests.commands import count_commands

pytestmark = pytest.mark.native
MILLISECOND_NS = 1_000_000

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def a_job(**fields: Any) -> Job:
    return Job(
        **(
            {
                "id": str(uuid.uuid4()),
                "app_id": "app",
                "app_name": "app",
                "service": APNS,
                "template_names": ("like",),
                "created_by": "a@example.com",
                "group_id": "g",
            }
            | fields
        )
    )


A_TEMPLATE = Template(id="t", app_id="app", name="like", locale="en", body={"a.b": {"$set": "\0"}}, defaults={"": 1})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    context=st.dictionaries(st.text(), json_values, max_size=4),
    metadata=st.dictionaries(st.text(), json_values, max_size=4),
    filters=st.dictionaries(st.text(), st.text(), max_size=4),
)
async def test_what_users_wrote_comes_out_as_it_went_in(
    store: Store, context: dict[str, Any], metadata: dict[str, Any], filters: dict[str, str]
) -> None:
    job = a_job(context=context, metadata=metadata, filters=filters)
    await store.jobs.add(job)
    assert await store.jobs.get(job.id) == job


async def test_an_id_and_a_key_are_taken_once(store: Store) -> None:
    job = a_job(idempotency=Idempotency("me/first", "digest"))
    await store.jobs.add(job)
    for again in (replace(job, idempotency=None), replace(job, id="another")):
        with pytest.raises(Conflict):
            await store.jobs.add(again)
    assert await store.jobs.with_key("me/first") == job
    await store.jobs.add(a_job())
    await store.jobs.add(a_job())


@pytest.mark.parametrize("status", JobStatus)
async def test_moves_follow_the_table(store: Store, status: JobStatus) -> None:
    for to, only in ((JobStatus.PAUSED, PAUSABLE), (JobStatus.RUNNING, RESUMABLE), (JobStatus.STOPPED, STOPPABLE)):
        job = a_job(status=status)
        await store.jobs.add(job)
        moved = await store.jobs.move(job.id, to=to, only=only, at=7)
        assert (moved is not None) is (status in only)
        found = await store.jobs.get(job.id)
        assert found is not None
        assert (found.status, found.updated_at) == ((to, 7) if moved else (status, 0))


async def test_of_many_who_move_at_once_one_wins(store: Store) -> None:
    job = a_job()
    await store.jobs.add(job)
    moves = [store.jobs.move(job.id, to=JobStatus.PAUSED, only=PAUSABLE, at=at) for at in range(1, 9)]
    outcomes = await asyncio.gather(*moves)
    assert sum(outcome is not None for outcome in outcomes) == 1


async def test_a_plan_is_fixed_once_and_ended_once(store: Store) -> None:
    job = a_job()
    await store.jobs.add(job)
    begun = await store.jobs.begin_plan(job.id, source=PushTable(5), templates=(A_TEMPLATE,))
    assert begun is not None
    assert (begun.plan.source, begun.plan.templates) == (PushTable(5), (A_TEMPLATE,))
    assert await store.jobs.begin_plan(job.id, source=PushTable(6), templates=()) is None
    assert await store.jobs.end_plan(job.id, end=3)
    assert not await store.jobs.end_plan(job.id, end=4)
    standing = await store.jobs.get_standing(job.id)
    assert standing is not None
    assert standing.end == 3


async def test_only_whoever_renders_reads_the_copied_templates(store: Store) -> None:
    key = Idempotency("me/lean", "digest")
    job = a_job(idempotency=key)
    await store.jobs.add(job)
    await store.jobs.begin_plan(job.id, source=PushTable(5), templates=(A_TEMPLATE,))
    whole = await store.jobs.get(job.id)
    assert whole is not None
    lean = replace(whole, plan=replace(whole.plan, templates=()))
    assert whole.plan.templates == (A_TEMPLATE,)
    assert await store.jobs.view(job.id) == lean
    assert await store.jobs.with_key(key.key) == lean
    assert await store.job_lists.page_of_app("app", limit=1) == [lean]
    moved = await store.jobs.move(job.id, to=JobStatus.PAUSED, only=PAUSABLE, at=7)
    assert moved is not None
    assert moved.plan == lean.plan
    assert await store.jobs.view("none") is None


async def test_a_job_takes_no_more_templates_than_its_document_can_hold(store: Store) -> None:
    job = a_job()
    await store.jobs.add(job)
    large = tuple(replace(A_TEMPLATE, locale=f"l{number}", body={"a": "x" * 2**20}) for number in range(8))
    with pytest.raises(Invalid) as refused:
        await store.jobs.begin_plan(job.id, source=PushTable(5), templates=large)
    assert refused.value.field == "template"
    assert await store.jobs.begin_plan(job.id, source=PushTable(5), templates=large[:7]) is not None


async def test_only_a_job_that_nobody_plans_is_withdrawn(store: Store) -> None:
    fresh, begun, ended = a_job(), a_job(), a_job(status=JobStatus.STOPPED)
    for job in (fresh, begun, ended):
        await store.jobs.add(job)
    await store.jobs.begin_plan(begun.id, source=PushTable(5), templates=())
    await store.jobs.close(ended.id, totals=Totals(), summed=Receipt(), completed_at=0)
    assert [await store.open_jobs.withdraw(job.id) for job in (fresh, begun, ended)] == [True, False, False]
    assert await store.jobs.view(fresh.id) is None
    assert await store.jobs.begin_plan(fresh.id, source=PushTable(5), templates=()) is None


async def test_open_jobs_are_not_removed(store: Store) -> None:
    running, ended, others = a_job(), a_job(status=JobStatus.STOPPED), a_job(app_id="other", status=JobStatus.STOPPED)
    for job in (running, ended, others):
        await store.jobs.add(job)
    for job in (ended, others):
        await store.jobs.close(job.id, totals=Totals(), summed=Receipt(), completed_at=0)
    assert await store.closed_jobs.find_of_app("app", limit=5) == [ended.id]
    await store.closed_jobs.remove([running.id, ended.id])
    assert await store.closed_jobs.find_of_app("app", limit=5) == []
    assert await store.jobs.view(running.id) == running
    assert await store.jobs.view(others.id) is not None


async def test_keys_mean_no_other_job_that_has_the_id_by_now(store: Store) -> None:
    earlier, bare = (a_job(status=JobStatus.STOPPED, incarnation=each) for each in ("earlier", ""))
    later = replace(earlier, incarnation="later")
    for job in (later, bare):
        await store.jobs.add(job)
        await store.jobs.close(job.key, totals=Totals(), summed=Receipt(), completed_at=0)
    soon = await store.now() + timedelta(seconds=5)
    slept = [earlier.key, bare.key]
    assert set(await store.jobs.with_ids(slept)) == {bare.id}
    assert set(await store.jobs.with_ids([later.key])) == set(await store.jobs.with_ids([later.id])) == {later.id}
    await store.closed_jobs.note_batches_removed(slept)
    assert await store.closed_jobs.find_ended_before(soon, [APNS], limit=5) == [later.key]
    await store.closed_jobs.remove(slept)
    assert await store.closed_jobs.find_of_app("app", limit=5) == [later.key]
    await store.closed_jobs.remove([later.id])
    assert await store.closed_jobs.find_of_app("app", limit=5) == []
    assert await store.jobs.with_ids([]) == {}


@pytest.mark.parametrize("status", JobStatus)
async def test_running_and_stopped_jobs_close_once(store: Store, status: JobStatus) -> None:
    job = a_job(status=status)
    await store.jobs.add(job)
    sums = {
        "totals": Totals(1, 1, 5, 4, 1),
        "summed": Receipt(4, 1, reasons={"a.b$": 1}, locales={"en": 4}),
        "completed_at": 9,
    }
    closed = await store.jobs.close(job.id, **sums)  # type: ignore[arg-type]
    assert (closed is not None) is (status in {JobStatus.RUNNING, JobStatus.STOPPED})
    if closed is not None:
        assert (closed.open, closed.totals, closed.reasons, closed.locales) == (
            False,
            Totals(1, 1, 5, 4, 1),
            {"a.b$": 1},
            {"en": 4},
        )
        assert closed.status is (JobStatus.COMPLETED if status is JobStatus.RUNNING else JobStatus.STOPPED)
        assert closed.completed_at == (9 if status is JobStatus.RUNNING else 0)
    assert await store.jobs.close(job.id, **sums) is None  # type: ignore[arg-type]


async def test_pages_follow_each_other_without_gap_or_repeat(store: Store) -> None:
    jobs = [a_job(created_at=number // 3) for number in range(10)] + [a_job(app_id="other")]
    for job in jobs:
        await store.jobs.add(job)
    seen: list[Job] = []
    after = None
    while page := await store.job_lists.page_of_app("app", after=after, limit=4):
        seen += page
        after = (page[-1].created_at, page[-1].id)
    assert sorted(job.id for job in seen) == sorted(job.id for job in jobs[:10])
    assert [job.created_at for job in seen] == sorted(job.created_at for job in seen)


async def test_only_open_jobs_are_looked_at(store: Store) -> None:
    running, stopped = a_job(), a_job(status=JobStatus.STOPPED)
    for job in (running, stopped):
        await store.jobs.add(job)
    await store.jobs.close(stopped.id, totals=Totals(), summed=Receipt(), completed_at=0)
    assert [job_id async for job_id in store.open_jobs.open_keys()] == [running.id]
    assert await store.open_jobs.has_open("app")
    assert not await store.open_jobs.has_open("other")


async def test_jobs_that_wait_are_looked_at_when_their_start_has_passed(store: Store) -> None:
    waiting = [a_job(status=JobStatus.SCHEDULED, starts_at=ms * MILLISECOND_NS) for ms in (10, 20, 30)]
    others = [
        a_job(status=status, starts_at=10 * MILLISECOND_NS)
        for status in (JobStatus.RUNNING, JobStatus.PAUSED, JobStatus.STOPPED)
    ]
    for job in waiting + others:
        await store.jobs.add(job)
    assert {job_id async for job_id in store.open_jobs.open_keys()} == {job.id for job in others}
    assert {job_id async for job_id in store.open_jobs.overdue_keys(from_ms(20))} == {job.id for job in waiting[:2]}
    assert await store.jobs.move(waiting[0].id, to=JobStatus.PAUSED, only=PAUSABLE, at=1)
    assert {job_id async for job_id in store.open_jobs.overdue_keys(from_ms(20))} == {waiting[1].id}
    assert {job_id async for job_id in store.open_jobs.open_keys()} == {job.id for job in [waiting[0], *others]}


async def test_old_keys_are_freed_in_steps(store: Store) -> None:
    old = [a_job(idempotency=Idempotency(f"me/{n}", "digest"), created_at=n * MILLISECOND_NS) for n in range(5)]
    kept = a_job(idempotency=Idempotency("me/kept", "digest"), created_at=5 * MILLISECOND_NS)
    for job in [*old, kept, a_job(created_at=1)]:
        await store.jobs.add(job)
    assert [await store.closed_jobs.expire_keys(from_ms(5), limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert [await store.jobs.with_key(f"me/{n}") for n in range(5)] == [None] * 5
    assert await store.jobs.with_key("me/kept") == kept
    assert await store.jobs.get(old[0].id) == replace(old[0], idempotency=None)


@pytest.mark.xfail(raises=Conflict, reason="the stand-in's unique indexes never let go of a value that was changed")
async def test_a_key_that_was_freed_may_be_used_again(store: Store) -> None:
    await store.jobs.add(a_job(idempotency=Idempotency("me/again", "digest")))
    assert await store.closed_jobs.expire_keys(from_ms(1), limit=1) == 1
    await store.jobs.add(a_job(idempotency=Idempotency("me/again", "other")))


async def test_closed_jobs_are_named_until_their_batches_are_forgotten(store: Store) -> None:
    completed, stopped, running = a_job(), a_job(status=JobStatus.STOPPED), a_job()
    for job in (completed, stopped, running):
        await store.jobs.add(job)
    for job in (completed, stopped):
        assert await store.jobs.close(job.id, totals=Totals(), summed=Receipt(), completed_at=1)
    now = await store.now()
    later, earlier = (now + timedelta(seconds=by) for by in (5, -5))
    assert await store.closed_jobs.find_ended_before(earlier, [APNS], limit=5) == []
    assert set(await store.closed_jobs.find_ended_before(later, [APNS], limit=5)) == {completed.id, stopped.id}
    (first,) = await store.closed_jobs.find_ended_before(later, [APNS], limit=1)
    await store.closed_jobs.note_batches_removed([first])
    (second,) = await store.closed_jobs.find_ended_before(later, [APNS], limit=5)
    assert {first, second} == {completed.id, stopped.id}
    assert await store.closed_jobs.find_ended_before(later, ["fax"], limit=5) == []
    assert await store.jobs.view(first) is not None


async def test_a_change_that_nobody_reads_copies_no_job(ready_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the answer of findAndModify a server copies the whole document, with megabytes of templates."""
    commands, job = count_commands(monkeypatch), a_job()
    store = Store.open(ready_database)
    await store.jobs.add(job)
    for _ in range(2):
        await store.jobs.note_first(job.id, Event(PLAN, EventState.RUNNING, "starting", 1))
    assert await store.jobs.end_plan(job.id, end=3)
    found = await store.jobs.get(job.id)
    assert found is not None
    assert ([event.message for event in found.events], found.plan.end) == (["starting"], 3)
    assert (commands.by_collection["update jobs"], commands.counts["findAndModify"]) == (3, 0)
    await store.close()


async def test_many_jobs_are_asked_for_by_ids_alone(ready_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times a second a worker asks for hundreds: an `$or` has a branch for each."""
    commands, jobs = count_commands(monkeypatch), [a_job(incarnation=f"i{number}") for number in range(3)]
    store = Store.open(ready_database)
    await store.jobs.add_missing(jobs)
    keys = [jobs[0].key, f"{jobs[1].id}.another", jobs[2].key]
    assert set(await store.message_jobs.get_standings(keys)) == {jobs[0].key, jobs[2].key}
    assert set(await store.jobs.with_ids([*keys, jobs[1].id])) == {job.id for job in jobs}
    queries = [sent["filter"] for sent in commands.sent if "find" in sent]
    assert [query.keys() for query in queries] == [{"_id"}, {"_id"}]
    await store.close()
