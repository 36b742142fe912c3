"""The file of a control group that cannot be written: what the job's events say, and that the job closes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from shared.core.errors import Unavailable
from shared.drivers.blobs import Blobs
from shared.drivers.blobs.files import FolderBlobs
from shared.drivers.blobs.s3 import S3Blobs
from shared.drivers.kafka import Stream
from shared.jobs.finish import Breaker, Finish
from shared.jobs.kinds import JobKinds
from shared.jobs.rules.events import FINISH, SEND_ENDED, Event, EventState
from shared.jobs.rules.jobs import STOPPABLE, Job, JobStatus
from shared.push.kind import ControlGroupFile, PushKind
from shared.runtime.server_settings import StreamSettings
from shared.store import Store
from tests.clocks import ManualClock
from tests.drivers.blobs.answers import answering, refusal
from tests.jobs.made import added
from tests.tiers import and_rarely

pytestmark = pytest.mark.native

HOUR = 3_600


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def finish(store: Store, clock: ManualClock) -> Callable[[Blobs], Finish]:
    breaker = Breaker(store, clock, role="worker", max_failed_share=0.05, mails=False)
    return partial(_finish, store, breaker, clock)


def _finish(store: Store, breaker: Breaker, clock: ManualClock, blobs: Blobs) -> Finish:
    control_group = ControlGroupFile(store, blobs, clock, folder="held-out")
    kinds = JobKinds([PushKind(cast("Stream", None), control_group, StreamSettings())])
    return Finish(store, kinds, breaker, clock, role="worker", mails=False)


async def all_sent(store: Store) -> str:
    """A job of which nothing is left to do but to close it; its id."""
    job_id = await added(store, control_group=0.1)
    await store.batches.add_end(job_id, 0)
    await store.jobs.end_plan(job_id, end=0)
    return job_id


async def found(store: Store, job_id: str) -> Job:
    job = await store.jobs.view(job_id)
    assert job is not None
    return job


@asynccontextmanager
async def refusing(code: str) -> AsyncIterator[Blobs]:
    async with answering(lambda asked: refusal(asked, 403, code)) as url:
        blobs = S3Blobs("s3://bucket", endpoint_url=url, access_key="me", secret_key="tell-no-one")
        try:
            yield blobs
        finally:
            await blobs.close()


@pytest.mark.parametrize(
    ("code", "reason"), [("AccessDenied", "S3 denies access"), ("NoSuchBucket", "there is no such bucket")]
)
@pytest.mark.parametrize("stopped", and_rarely(False, rarely=(True,)), ids=["completed", "stopped"])
async def test_what_is_refused_for_good_is_given_up_at_once(
    store: Store, finish: Callable[[Blobs], Finish], clock: ManualClock, code: str, reason: str, stopped: bool
) -> None:
    job_id = await all_sent(store)
    if stopped:
        await store.jobs.move(job_id, to=JobStatus.STOPPED, only=STOPPABLE, at=1)
    async with refusing(code) as blobs:
        closed = await finish(blobs).job(job_id)
    assert closed is not None
    job = await found(store, job_id)
    assert job == closed
    assert (job.open, job.control_group_csv_path) == (False, "")
    message = f"the control group could not be written to bucket/held-out/job-{job_id}.csv: {reason}"
    failure = Event(FINISH, EventState.FAIL, message, clock.now_ns())
    if stopped:
        assert (job.status, job.events) == (JobStatus.STOPPED, (failure,))
    else:
        ended = Event(SEND_ENDED, EventState.SUCCESS, "Finished all batches", clock.now_ns())
        assert (job.status, job.events) == (JobStatus.COMPLETED, (ended, failure))
        assert job.completed_at == clock.now_ns()


async def test_what_may_pass_is_tried_for_a_day_and_told_of_at_once(
    store: Store, finish: Callable[[Blobs], Finish], clock: ManualClock, tmp_path: Path
) -> None:
    (tmp_path / "in-the-way").touch()
    blocked = finish(FolderBlobs.open((tmp_path / "in-the-way").as_uri()))
    job_id = await all_sent(store)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await blocked.job(job_id)
        clock.advance(11 * HOUR)
    job = await found(store, job_id)
    assert (job.status, job.open, job.completed_at) == (JobStatus.RUNNING, True, 0)
    (waits,) = job.events
    assert (waits.stage, waits.state, waits.at) == (FINISH, EventState.FAIL, clock.now_ns() - 33 * HOUR * 10**9)
    assert f"carillon/held-out/job-{job_id}.csv: the folder" in waits.message
    assert waits.message.endswith("; it is tried again for 24 hours")
    closed = await blocked.job(job_id)
    assert closed is not None
    assert (closed.status, closed.control_group_csv_path) == (JobStatus.COMPLETED, "")
    assert [(event.stage, event.state) for event in closed.events] == [
        (FINISH, EventState.FAIL),
        (SEND_ENDED, EventState.SUCCESS),
        (FINISH, EventState.FAIL),
    ]


async def test_what_passes_in_time_leaves_a_file(
    store: Store, finish: Callable[[Blobs], Finish], clock: ManualClock, tmp_path: Path
) -> None:
    place = tmp_path / "in-the-way"
    place.touch()
    blobs = FolderBlobs.open(place.as_uri())
    job_id = await all_sent(store)
    with pytest.raises(Unavailable):
        await finish(blobs).job(job_id)
    place.unlink()
    place.mkdir()
    clock.advance(23 * HOUR)
    closed = await finish(blobs).job(job_id)
    assert closed is not None
    assert (place / closed.control_group_csv_path).read_bytes() == b"controlGroupUserIds\n"
    assert [(event.stage, event.state) for event in closed.events] == [
        (FINISH, EventState.FAIL),
        (SEND_ENDED, EventState.SUCCESS),
        (FINISH, EventState.RUNNING),
        (FINISH, EventState.SUCCESS),
    ]
