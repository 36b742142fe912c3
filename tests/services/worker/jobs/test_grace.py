"""A file that we are denied, a push table that is away: told once, tried again for ten minutes, then a fault; one
success begins the time of grace anew."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.worker.jobs.finish import Grace
from shared.audience.rules.audiences import File
from shared.core.errors import Denied, Invalid, Unavailable
from shared.drivers.blobs import Blobs
from shared.drivers.blobs.files import FolderBlobs
from shared.drivers.blobs.s3 import S3Blobs
from shared.jobs.rules.events import PLAN, READ_FILE, SEND, Event, EventState
from shared.jobs.rules.jobs import Job
from shared.store import Store
from tests.clocks import ManualClock
from tests.drivers.blobs.answers import answering, refusal
from tests.jobs.made import added

pytestmark = pytest.mark.native

PATH = "bucket/users.csv"
SECONDS = 600.0


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


async def failures_told(store: Store, job: Job) -> list[Event]:
    found = await store.jobs.get(job.id)
    assert found is not None
    return [event for event in found.events if event.state is EventState.FAIL]


@pytest.fixture
def grace(store: Store, clock: ManualClock) -> Grace:
    return Grace(store, clock, seconds=SECONDS)


async def meet(grace: Grace, job: Job, error: Exception | None) -> None:
    async with grace.give(job, stage=SEND):
        if error is not None:
            raise error


FAILURES = [
    (Denied("closed"), Denied, READ_FILE, f"{PATH}: closed", "csvPath"),
    (Denied(f"{PATH}: closed"), Denied, READ_FILE, f"{PATH}: closed", "csvPath"),
    (Invalid("there is no table", field="app"), Unavailable, SEND, "there is no table", "app"),
    (Invalid("no such column", field="filters.level"), Unavailable, SEND, "no such column", "filters.level"),
]


@pytest.mark.parametrize(("error", "meanwhile", "stage", "reason", "field"), FAILURES)
async def test_a_failure_is_told_once_and_is_a_fault_after_ten_minutes(
    store: Store,
    clock: ManualClock,
    grace: Grace,
    job: Job,
    error: Exception,
    meanwhile: type[Exception],
    stage: str,
    reason: str,
    field: str,
) -> None:
    elsewhere = Grace(store, clock, seconds=SECONDS)
    for here in (grace, elsewhere, grace):
        with pytest.raises(meanwhile):
            await meet(here, job, error)
        clock.advance(SECONDS / 3)
    [event] = await failures_told(store, job)
    assert (event.stage, event.message) == (stage, f"{reason}; it is tried again for 10 minutes")
    with pytest.raises(Invalid, match=f"{reason}, for 10 minutes") as raised:
        await meet(grace, job, error)
    assert raised.value.field == field
    # Whatever meets it then fails at once, in this worker.
    with pytest.raises(Invalid, match=f"{reason}, for 10 minutes"):
        await meet(grace, job, error)
    with pytest.raises(meanwhile):
        await meet(elsewhere, job, error)


async def test_another_job_over_the_same_table_says_nothing_about_this_one(
    store: Store, clock: ManualClock, grace: Grace, job: Job
) -> None:
    """Its filters name a column that is gone, and the other job's do not."""
    other = await store.jobs.get(await added(store))
    assert other is not None
    for _ in range(3):
        with pytest.raises(Unavailable):
            await meet(grace, job, Invalid("no such column", field="filters.level"))
        await meet(grace, other, None)
        clock.advance(SECONDS / 3)
    with pytest.raises(Invalid):
        await meet(grace, job, Invalid("no such column", field="filters.level"))


async def test_a_success_begins_the_time_anew(store: Store, clock: ManualClock, grace: Grace, job: Job) -> None:
    for error in (Denied("closed"), Invalid("gone", field="app")):
        for _ in range(2):
            with pytest.raises(Unavailable):
                await meet(grace, job, error)
            clock.advance(SECONDS + 1)
            await meet(grace, job, None)


async def test_failures_of_long_ago_are_no_failures_since(clock: ManualClock, grace: Grace, job: Job) -> None:
    for _ in range(3):
        with pytest.raises(Denied):
            await meet(grace, job, Denied("closed"))
        clock.advance(SECONDS + 1)


async def test_an_outage_and_another_fault_pass_as_they_are(store: Store, grace: Grace, job: Job) -> None:
    for error in (Unavailable("away"), Invalid("the file has changed", field="csvPath")):
        with pytest.raises(type(error)):
            await meet(grace, job, error)
    assert await failures_told(store, job) == []


async def test_without_grace_the_first_failure_is_a_fault(store: Store, clock: ManualClock, job: Job) -> None:
    with pytest.raises(Invalid):
        await meet(Grace(store, clock, seconds=0), job, Invalid("there is no table", field="app"))


@asynccontextmanager
async def denying_s3() -> AsyncIterator[Blobs]:
    async with answering(lambda asked: refusal(asked, 403, "SignatureDoesNotMatch")) as url:
        blobs = S3Blobs("s3://bucket", endpoint_url=url, access_key="me", secret_key="tell-no-one")
        try:
            yield blobs
        finally:
            await blobs.close()


async def test_a_file_that_s3_denies_waits_with_an_event(store: Store, grace: Grace, job: Job) -> None:
    async with denying_s3() as blobs:
        with pytest.raises(Denied, match="SignatureDoesNotMatch"):
            async with grace.give(job, stage=PLAN):
                await blobs.stat(PATH)
    assert "SignatureDoesNotMatch" in (await failures_told(store, job))[0].message


async def test_a_folder_that_is_closed_to_us_denies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may be root, to whom no folder is closed."""
    blobs = FolderBlobs.open(tmp_path.as_uri())

    def closed(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shared.drivers.blobs.files.os.open", closed)
    with pytest.raises(Denied, match="Permission denied"):
        await blobs.stat(f"{blobs.bucket}/{uuid.uuid4()}.csv")
