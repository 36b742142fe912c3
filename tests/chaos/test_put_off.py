"""What a job's work needs is away for longer than anybody tries in place: the work waits for the clock, its slot does
other work, and afterwards everything is as it should be."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from services.worker.consumer import FAULTS
from shared.jobs.rules.jobs import BATCH_QUEUE, SPLIT_QUEUE, JobStatus
from shared.push.rules.records import GCM
from tests import stack as servers
from tests.e2e.house import House
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

SLOW = ",".join(f"send.after_take@{n}=delay:0.3" for n in range(1, 40))
RECOVERED_SECONDS = 120.0


def raises(point: str, *, times: int) -> str:
    return ",".join(f"{point}@{n}=raise" for n in range(1, times + 1))


async def put_off(house: House, job_id: str) -> list[str]:
    """The owners of the occurrences that belong to a job."""
    found = house.servers.store.occurrences._occurrences.find({"owner": {"$regex": job_id}}, {"owner": 1})
    return sorted([document["owner"] async for document in found])


async def is_put_off(house: House, job_id: str) -> bool:
    return bool(await put_off(house, job_id))


async def is_put_off_once(house: House, job_id: str) -> bool:
    return await put_off(house, job_id) == [f"job/{job_id}/plan"]


async def nothing_is_left(house: House) -> None:
    """No occurrence outlives the work that it was made for by more than its pause."""

    async def none_waits() -> bool:
        return await house.servers.store.occurrences._occurrences.count_documents({}) == 0

    await until(none_waits, "the last occurrences to fire")
    for queue in (SPLIT_QUEUE, BATCH_QUEUE):
        assert await house.servers.broker.depth(queue) == 0


async def some_are_sent(house: House, job_id: str) -> bool:
    totals = await house.servers.store.batch_sums.totals([job_id])
    return job_id in totals and totals[job_id].settled >= 3


@pytest.mark.kills_servers
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("server", ["postgres", "kafka"])
async def test_a_server_is_away_for_long_in_mid_job(house: House, server: str) -> None:
    await house.devices(20_000)
    await house.start("scheduler")
    await house.start("worker", fault=SLOW)
    job_id = await house.post()
    await until(lambda: some_are_sent(house, job_id), "the first batches")
    await asyncio.to_thread(servers.kill, server)
    try:
        await until(lambda: is_put_off(house, job_id), "work to be put off", RECOVERED_SECONDS)
        await asyncio.sleep(5)  # some of it comes back in vain
    finally:
        await asyncio.to_thread(servers.start, server)
    await house.exactly_once(job_id, 20_000, seconds=RECOVERED_SECONDS)
    await nothing_is_left(house)


@pytest.mark.kills_servers
async def test_the_push_database_is_away_when_a_job_is_to_be_planned(house: House) -> None:
    await house.devices(5_000)
    await house.start("scheduler")
    await house.start("worker")
    await asyncio.to_thread(servers.kill, "postgres")
    try:
        job_id = await house.post()
        # Two tries that are put off at the same moment do not see each other; at their next tries they become one.
        await until(lambda: is_put_off_once(house, job_id), "the plan to be put off, once", RECOVERED_SECONDS)
    finally:
        await asyncio.to_thread(servers.start, "postgres")
    await house.exactly_once(job_id, 5_000, seconds=RECOVERED_SECONDS)
    await nothing_is_left(house)


@asynccontextmanager
async def locked(push_database: str, table: str) -> AsyncIterator[None]:
    """Nobody can read the table meanwhile; all others can be read."""
    connection = await asyncpg.connect(push_database)
    try:
        async with connection.transaction():
            await connection.execute(f'LOCK TABLE "{table}" IN ACCESS EXCLUSIVE MODE')
            yield
    finally:
        await connection.close()


@pytest.mark.slow
async def test_work_that_waits_leaves_its_slot_to_other_jobs(house: House, push_database: str) -> None:
    """One slot, and a job whose table cannot be read: the other kind of device gets its pushes all the same."""
    await house.devices(8_000)
    other = f"{house.app}_gcm"
    await house.change_devices(f'CREATE TABLE "{other}" AS TABLE {{table}}')
    await house.start("scheduler")
    one_slot = {"CARILLON_WORKER_LANES": "1", "CARILLON_WORKER_SENDS_IN_FLIGHT": "1"}
    await house.start("worker", fault=SLOW, CARILLON_AUDIENCE_STATEMENT_TIMEOUT_SECONDS="1", **one_slot)
    stuck = await house.post()
    await until(lambda: some_are_sent(house, stuck), "the first batches")
    async with locked(push_database, f"{house.app}_apns"):
        await until(lambda: is_put_off(house, stuck), "work to be put off", RECOVERED_SECONDS)
        free = await house.post(service=GCM)
        job = await house.closed(free)
        assert job.totals is not None
        assert (job.status, job.totals.sent, job.totals.failed) == (JobStatus.COMPLETED, 8_000, 0)
        standing = await house.servers.store.jobs.view(stuck)
        assert standing is not None
        assert standing.open
    await house.exactly_once(stuck, 8_000)
    assert len(await house.records(8_000, topic=f"push-{other}-massive")) == 8_000
    await nothing_is_left(house)


@pytest.mark.proof
@pytest.mark.parametrize(
    "point", and_rarely("send.after_take", rarely=("send.before_take", "send.after_commit", "plan.after_page"))
)
async def test_a_fault_that_passes_fails_nothing(house: House, point: str) -> None:
    """Whoever owns the batch by then, and whatever of it is out."""
    await house.devices(1_000)
    await house.start("scheduler")
    await house.start("worker", fault=raises(point, times=FAULTS - 1))
    await house.exactly_once(await house.post(), 1_000)
    await nothing_is_left(house)


@pytest.mark.parametrize("point", and_rarely("send.before_take", rarely=("send.after_take",)))
async def test_a_fault_that_stays_fails_its_batch_and_the_job_completes(house: House, point: str) -> None:
    await house.devices(1_000)
    await house.start("scheduler")
    worker = await house.start("worker", fault=raises(point, times=FAULTS))
    job = await house.closed(await house.post())
    assert job.totals is not None
    assert (job.status, job.totals.sent, job.totals.failed) == (JobStatus.COMPLETED, 0, 1_000)
    assert job.reasons == {"fault": 1_000}
    assert worker.log.count("task failed") == FAULTS
    assert await house.records(0) == []
