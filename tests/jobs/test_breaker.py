"""A job of which too many batches failed is held, and no look from before a resume holds it once more."""

import pytest

from shared.jobs.finish import Breaker
from shared.jobs.rules.batches import Counts, Receipt
from shared.jobs.rules.jobs import RESUMABLE, JobStatus
from shared.store import Store
from tests.clocks import ManualClock
from tests.jobs.made import SIZE, add_planned

pytestmark = pytest.mark.native


@pytest.fixture
def breaker(store: Store) -> Breaker:
    return Breaker(store, ManualClock(), role="worker", max_failed_share=0, mails=False)


async def add_failed(store: Store) -> str:
    """A job of one batch, which failed."""
    job_id = await add_planned(store, 1)
    queued = await store.batches.queue(job_id, 0)
    assert queued is not None
    assert await store.batches.fail(queued, receipt=Receipt(failed=SIZE)) is not None
    return job_id


async def status(store: Store, job_id: str) -> JobStatus:
    job = await store.jobs.view(job_id)
    assert job is not None
    return job.status


async def resume(store: Store, job_id: str) -> None:
    """What the operator does, who forgives the batch that failed."""
    resumed = await store.jobs.move(job_id, to=JobStatus.RUNNING, only=RESUMABLE, at=1, forgiven=1)
    assert resumed is not None


async def test_a_job_is_held_once_and_its_resume_forgives(store: Store, breaker: Breaker) -> None:
    job_id = await add_failed(store)
    assert await breaker.look(job_id) is not None
    assert await breaker.look(job_id) is None
    assert await status(store, job_id) is JobStatus.TRIPPED
    await resume(store, job_id)
    assert await breaker.look(job_id) is None
    assert await status(store, job_id) is JobStatus.RUNNING


async def test_a_look_from_before_a_resume_changes_nothing(
    store: Store, breaker: Breaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await add_failed(store)
    count = store.batch_sums.counts

    async def slow_count(job_key: str) -> Counts:
        """Meanwhile another look holds the job, and an operator resumes it."""
        counts = await count(job_key)
        with monkeypatch.context() as others:
            others.setattr(store.batch_sums, "counts", count)
            assert await breaker.look(job_id) is not None
            await resume(store, job_id)
        return counts

    with monkeypatch.context() as slow:
        slow.setattr(store.batch_sums, "counts", slow_count)
        assert await breaker.look(job_id) is None
    assert await status(store, job_id) is JobStatus.RUNNING
