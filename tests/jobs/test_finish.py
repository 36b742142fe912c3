"""A job closes when all of its batches are settled, and not because a server has not heard of some."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.jobs.finish import Breaker, Finish
from shared.jobs.rules.batches import BatchStatus, Receipt, Totals
from shared.jobs.rules.jobs import JobStatus
from shared.jobs.rules.progress import Settled
from shared.store import Store
from tests.clocks import ManualClock
from tests.jobs.kinds import KINDS
from tests.jobs.made import SIZE, add_planned

pytestmark = pytest.mark.native


async def send(store: Store, job_id: str, ordinal: int) -> None:
    queued = await store.batches.queue(job_id, ordinal)
    assert queued is not None
    taken = await store.batches.take(queued, owner="lane")
    assert taken is not None
    await store.batches.settle(taken, to=BatchStatus.SENT, receipt=Receipt(sent=SIZE))


@pytest.fixture
def finish(store: Store) -> Finish:
    clock = ManualClock()
    breaker = Breaker(store, clock, role="worker", max_failed_share=1, mails=False)
    return Finish(store, KINDS, breaker, clock, role="worker", mails=False)


async def test_a_job_closes_with_its_last_batch(store: Store, finish: Finish) -> None:
    job_id = await add_planned(store, 2)
    await send(store, job_id, 0)
    assert await finish.job(job_id) is None
    await send(store, job_id, 1)
    job = await finish.job(job_id)
    assert job is not None
    assert (job.status, job.totals) == (JobStatus.COMPLETED, Totals(batches=2, settled=2, planned=20, sent=20))


async def test_a_job_that_expired_with_something_unsent_says_so(store: Store, finish: Finish) -> None:
    job_id = await add_planned(store, 2, expires_at=1)
    await send(store, job_id, 0)
    queued = await store.batches.queue(job_id, 1)
    assert queued is not None
    assert await store.batches.drop(queued)
    job = await finish.job(job_id)
    assert job is not None
    assert (job.status, job.failure) == (JobStatus.COMPLETED, "10 of 20 recipients got nothing by expiresAt")
    [told] = await store.milestones.find(limit=9)
    assert [milestone.reason for milestone in told.milestones] == [job.failure]


async def test_a_job_that_sent_all_before_it_expired_is_completed(store: Store, finish: Finish) -> None:
    job_id = await add_planned(store, 1, expires_at=1)
    await send(store, job_id, 0)
    job = await finish.job(job_id)
    assert job is not None
    assert (job.status, job.failure) == (JobStatus.COMPLETED, "")


@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.STOPPED])
async def test_a_server_that_lags_behind_closes_nothing(
    store: Store, finish: Finish, monkeypatch: pytest.MonkeyPatch, status: JobStatus
) -> None:
    """It knows the job as it is now, and its batches as they were before they were cut."""
    job_id = await add_planned(store, 2)
    await send(store, job_id, 0)
    if status is JobStatus.STOPPED:
        await store.jobs.move(job_id, to=status, only=frozenset({JobStatus.RUNNING}), at=1)

    async def nothing(*_: Any) -> Any:
        return {}

    async def no_outcomes(*_: Any) -> AsyncIterator[Settled]:
        none: list[Settled] = []
        for settled in none:
            yield settled

    with monkeypatch.context() as lagging:
        lagging.setattr(store.batches, "has_unsettled", nothing)
        for name in ("has_failed", "totals"):
            lagging.setattr(store.batch_sums, name, nothing)
        lagging.setattr(store.batch_sums, "outcomes", no_outcomes)
        assert await finish.job(job_id) is None
    found = await store.jobs.view(job_id)
    assert found is not None
    assert (found.status, found.open) == (status, True)


async def test_sums_of_too_few_batches_are_not_written(
    store: Store, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer was from before the last batch was settled, the next one from after it."""
    job_id = await add_planned(store, 2)
    await send(store, job_id, 0)
    before = await store.batch_sums.totals([job_id])
    await send(store, job_id, 1)

    async def earlier(*_: Any) -> dict[str, Totals]:
        return before

    with monkeypatch.context() as lagging:
        lagging.setattr(store.batch_sums, "totals", earlier)
        assert await finish.job(job_id) is None
    assert await finish.job(job_id) is not None
