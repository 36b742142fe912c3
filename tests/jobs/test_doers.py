"""What happened to a job is told with who did it."""

import pytest

from shared.jobs.feed import Feed
from shared.jobs.moves import JobFlow
from shared.jobs.rules.events import BY_ITSELF, PAUSE, PLAN, RESUME, STOP, Doer, EventState
from shared.jobs.rules.jobs import Job, JobStatus
from shared.runtime.clock import SystemClock
from shared.store import Store
from tests.jobs.made import a_job, added

pytestmark = pytest.mark.native

ANA, BILLING = Doer("user", "ana@example.com"), Doer("token", "billing")
FAR = 4 * 10**18


@pytest.fixture
def flow(store: Store, feed: Feed) -> JobFlow:
    return JobFlow(store, feed, SystemClock(), role="api")


async def found(store: Store, job_id: str) -> Job:
    job = await store.jobs.view(job_id)
    assert job is not None
    return job


async def test_moves_that_somebody_asks_for_are_told_with_who_asked(store: Store, flow: JobFlow) -> None:
    job_id = await added(store)
    for move, by in ((flow.pause, ANA), (flow.pause, BILLING), (flow.resume, BILLING), (flow.stop, ANA)):
        await move(job_id, by=by)
    job = await found(store, job_id)
    assert [(event.stage, event.by) for event in job.events] == [(PAUSE, ANA), (RESUME, BILLING), (STOP, ANA)]
    assert {(event.state, event.message) for event in job.events} == {(EventState.SUCCESS, "")}


async def test_a_job_that_waits_again_tells_it_too(store: Store, flow: JobFlow) -> None:
    job, _ = await flow.start(a_job(status=JobStatus.SCHEDULED, starts_at=FAR))
    await flow.pause(job.key, by=ANA)
    resumed = await flow.resume(job.key, by=ANA)
    assert resumed is not None
    assert (resumed.status, [event.stage for event in resumed.events]) == (JobStatus.SCHEDULED, [PAUSE, RESUME])


async def test_what_nobody_asked_for_is_told_by_its_failure_alone(store: Store, flow: JobFlow) -> None:
    job_id = await added(store)
    await flow.stop(job_id, failure="planning failed", stage=PLAN)
    [event] = (await found(store, job_id)).events
    assert (event.stage, event.by) == (PLAN, BY_ITSELF)
    quiet = await added(store)
    await flow.stop(quiet, failure="the app is being deleted")
    assert (await found(store, quiet)).events == ()
