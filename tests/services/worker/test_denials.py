"""A file that we are denied: told once, tried again for ten minutes, then a fault; one answer begins it anew."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.worker.denials import TRIED_FOR, Denials, WatchingReader
from shared.audience import Audience
from shared.blobs import Blobs
from shared.blobs.files import FolderBlobs
from shared.blobs.s3 import S3Blobs
from shared.domain.batches import Batch, ByteRange
from shared.domain.errors import Denied, Invalid, Unavailable
from shared.domain.jobs import READ_FILE, Event, EventState, Job
from shared.domain.sources import File
from shared.store import Store
from tests.blobs.answers import answering, refusal
from tests.clock import ManualClock
from tests.store.conftest import store
from tests.store.made import added

__all__ = ["store"]

pytestmark = pytest.mark.native

PATH = "bucket/users.csv"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def job(store: Store) -> Job:
    job_id = await added(store, csv_path=PATH)
    await store.jobs.begin_plan(
        job_id, source=File(PATH, 9, "v"), templates=(), events=[Event(READ_FILE, EventState.RUNNING, "starting", 1)]
    )
    found = await store.jobs.get(job_id)
    assert found is not None
    return found


async def denials_told(store: Store, job: Job) -> list[Event]:
    found = await store.jobs.get(job.id)
    assert found is not None
    return [event for event in found.events if event.state is EventState.FAIL]


async def meet(denials: Denials, job: Job, error: Exception | None) -> None:
    async with denials.watching(job):
        if error is not None:
            raise error


async def test_a_denial_is_told_once_and_is_a_fault_after_ten_minutes(
    store: Store, clock: ManualClock, job: Job
) -> None:
    here, elsewhere = Denials(store, clock), Denials(store, clock)
    for denials in (here, elsewhere, here):
        with pytest.raises(Denied):
            await meet(denials, job, Denied("closed"))
        clock.advance(TRIED_FOR.total_seconds() / 3)
    [event] = await denials_told(store, job)
    assert (event.stage, event.message) == (READ_FILE, f"{PATH}: closed; it is tried again for 10 minutes")
    with pytest.raises(Invalid, match="closed, for 10 minutes") as raised:
        await meet(here, job, Denied("closed"))
    assert raised.value.field == "csvPath"
    with pytest.raises(Denied):
        await meet(elsewhere, job, Denied("closed"))


async def test_an_answer_begins_the_ten_minutes_anew_and_an_outage_is_no_denial(
    store: Store, clock: ManualClock, job: Job
) -> None:
    denials = Denials(store, clock)
    with pytest.raises(Unavailable):
        await meet(denials, job, Unavailable("away"))
    assert await denials_told(store, job) == []
    for _ in range(2):
        with pytest.raises(Denied):
            await meet(denials, job, Denied("closed"))
        clock.advance(TRIED_FOR.total_seconds() + 1)
        await meet(denials, job, None)


@asynccontextmanager
async def denying_s3() -> AsyncIterator[Blobs]:
    async with answering(lambda asked: refusal(asked, 403, "SignatureDoesNotMatch")) as url:
        blobs = S3Blobs.open("s3://bucket", endpoint_url=url, access_key="me", secret_key="tell-no-one")
        try:
            yield blobs
        finally:
            await blobs.close()


async def test_a_batch_whose_lines_are_denied_waits_with_an_event(
    store: Store, clock: ManualClock, job: Job, push_database: str
) -> None:
    audience = await Audience.open(push_database, pool_size=1, statement_timeout_seconds=1)
    batch = Batch(job_id=job.id, ordinal=0, range=ByteRange(3, 9, 1), size=1)
    async with denying_s3() as blobs:
        reader = WatchingReader(audience, blobs, Denials(store, clock))
        with pytest.raises(Denied, match="SignatureDoesNotMatch"):
            await reader.recipients(job, batch)
    assert "SignatureDoesNotMatch" in (await denials_told(store, job))[0].message
    await audience.close()


async def test_a_folder_that_is_closed_to_us_denies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may be root, to whom no folder is closed."""
    blobs = FolderBlobs.open(tmp_path.as_uri())

    def closed(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shared.blobs.files.os.open", closed)
    with pytest.raises(Denied, match="Permission denied"):
        await blobs.stat(f"{blobs.bucket}/{uuid.uuid4()}.csv")
