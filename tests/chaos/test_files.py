"""What can happen to S3, or to the file, while a job over a file is planned and sent: nobody is lost, nobody gets it
twice, and the job ends by itself, once it can or where it cannot.

    S3 is away, or says nothing    the work waits for the clock, and goes on once S3 is back
    S3 is slow                     so is the job
    connections break              reading goes on where it stopped; where nothing comes, as if S3 were away
    the file is another one        the job stops, and an event says why
"""

import signal
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.jobs.rules.events import FINISH, READ_FILE, EventState
from shared.jobs.rules.jobs import JobStatus
from shared.push.rules.choices import held_out
from tests.chaos.s3_way import Way, way_to
from tests.chaos.test_put_off import RECOVERED_SECONDS, is_put_off, nothing_is_left, put_off, some_are_sent
from tests.e2e.house import House, Process
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

HURRIED = {"CARILLON_BLOBS_TIMEOUT_SECONDS": "1"}
ON_ITS_WAY = "send.after_take@4"
USERS = 8_000
SHARE = 0.1


def a_file(width: int = 0) -> bytes:
    """Every user, some whom nobody knows, and some users once more; each row with so many bytes beside its id."""
    ids = [
        *(f"u{number}" for number in range(1, USERS + 1)),
        *(f"x{number}" for number in range(300)),
        *(f"u{number}" for number in range(1, 501)),
    ]
    return b"id,note\n" + b"".join(f"{id_},{'.' * width}\n".encode() for id_ in ids)


@pytest.fixture
async def way(house: House) -> AsyncIterator[Way]:
    async with way_to(house.environment["CARILLON_BLOBS_ENDPOINT_URL"]) as way:
        yield way


async def a_worker(house: House, way: Way, *, fault: str = "", **environment: str) -> Process:
    """A worker on this way to S3, and the clock that brings back what it puts off."""
    await house.devices(USERS)
    await house.start("scheduler")
    return await house.start("worker", fault=fault, CARILLON_BLOBS_ENDPOINT_URL=way.url, **environment)


async def a_sender(house: House, way: Way) -> Process:
    """A worker that stops when some batches are sent and others are not read yet."""
    in_hand = {"CARILLON_WORKER_SENDS_IN_FLIGHT": "2"}
    return await a_worker(house, way, fault=f"{ON_ITS_WAY}=stop", **in_hand, **HURRIED)


async def is_done(house: House, job_id: str) -> None:
    """Every user who is known has one record, and nothing of the job is tried any more."""
    await house.exactly_once(job_id, USERS, seconds=RECOVERED_SECONDS)
    job = await house.closed(job_id)
    assert job.totals is not None
    assert (job.totals.unknown, job.totals.batches, job.failure) == (300, 9, "")
    assert not [event for event in job.events if event.state is EventState.FAIL]
    await nothing_is_left(house)


@pytest.mark.parametrize("how", and_rarely("silence", rarely=("shut", "fray")))
async def test_s3_is_away_when_a_file_is_to_be_planned(house: House, way: Way, how: str) -> None:
    await a_worker(house, way, **HURRIED)
    path = await house.file(a_file())
    await getattr(way, how)()
    job_id = await house.post(csv_path=path)
    await until(lambda: is_put_off(house, job_id), "the plan to be put off", RECOVERED_SECONDS)
    assert await put_off(house, job_id) == [f"job/{job_id}/plan"]
    await way.open()
    await is_done(house, job_id)


@pytest.mark.parametrize("how", and_rarely("fray", rarely=("shut", "silence")))
async def test_s3_is_away_while_batches_are_read(house: House, way: Way, how: str) -> None:
    worker = await a_sender(house, way)
    job_id = await house.post(csv_path=await house.file(a_file()))
    await worker.reached("send.after_take")
    await getattr(way, how)()
    worker.send(signal.SIGCONT)
    await until(lambda: is_put_off(house, job_id), "batches to be put off", RECOVERED_SECONDS)
    await way.open()
    await is_done(house, job_id)


async def test_s3_is_slow(house: House, way: Way) -> None:
    """Nothing is given up of what only takes long."""
    worker = await a_worker(house, way)
    way.pause = 0.2
    job_id = await house.post(csv_path=await house.file(a_file()))
    await is_done(house, job_id)
    assert "task waits" not in worker.log


async def test_connections_break_again_and_again_in_mid_file(house: House, way: Way) -> None:
    """A long read goes on where it stopped, however often. Batches may wait for a better connection."""
    worker = await a_worker(house, way)
    # What comes faster than it is read is lost with its connection.
    way.pause, way.break_after = 0.002, 1_500_000
    job_id = await house.post(csv_path=await house.file(a_file(width=1_000)))
    await until(lambda: some_are_sent(house, job_id), "the plan", RECOVERED_SECONDS)
    assert way.broken >= 5
    await way.open()
    await is_done(house, job_id)
    assert not [line for line in worker.log.splitlines() if "task waits" in line and "PlanJob" in line]


async def is_stopped(house: House, job_id: str) -> Counter[Any]:
    """The file is another one, and the job says so; the records that went out before."""
    job = await house.closed(job_id, seconds=RECOVERED_SECONDS)
    assert (job.status, job.completed_at) == (JobStatus.STOPPED, 0)
    assert "the object has changed" in job.failure
    last = job.events[-1]
    assert (last.stage, last.state, last.message) == (READ_FILE, EventState.FAIL, job.failure)
    assert job.totals is not None
    sent = Counter(record["metadata"]["userId"] for record in await house.records(job.totals.sent))
    assert sent.total() == job.totals.sent
    assert set(sent.values()) <= {1}
    await nothing_is_left(house)
    return sent


async def test_the_file_is_replaced_while_it_is_planned(house: House, way: Way) -> None:
    await a_worker(house, way)
    content = a_file(width=1_000)
    path = await house.file(content)
    way.pause, way.break_after = 0.01, 1_500_000
    job_id = await house.post(csv_path=path)
    await until(lambda: way.broken >= 2, "the middle of the file")
    await house.file(content[::-1])
    assert not await is_stopped(house, job_id)


async def test_the_file_is_replaced_while_s3_is_away(house: House, way: Way) -> None:
    worker = await a_sender(house, way)
    content = a_file()
    job_id = await house.post(csv_path=await house.file(content))
    await worker.reached("send.after_take")
    await way.shut()
    worker.send(signal.SIGCONT)
    await until(lambda: is_put_off(house, job_id), "batches to be put off", RECOVERED_SECONDS)
    await house.file(content[::-1])
    await way.open()
    sent = await is_stopped(house, job_id)
    assert 4_000 <= sent.total() < USERS


async def test_s3_is_away_when_the_control_group_is_to_be_written(house: House, way: Way) -> None:
    """The job says what it waits for, is soon tried by one at a time, and has its file in the end."""
    worker = await a_worker(house, way)
    await house.file(b"", "bucket")
    await way.shut()
    job_id = await house.post(control_group=SHARE)

    async def waits() -> bool:
        job = await house.servers.store.jobs.view(job_id)
        assert job is not None
        return job.open and [(event.stage, event.state) for event in job.events][-1:] == [(FINISH, EventState.FAIL)]

    await until(waits, "the event", RECOVERED_SECONDS)
    await until(lambda: worker.log.count("task put off") >= 2, "some tries", RECOVERED_SECONDS)

    async def is_tried_by_one() -> bool:
        # Two that are put off at the same moment do not see each other yet, but at their next tries.
        return await put_off(house, job_id) in ([], [f"job/{job_id}/finish"])

    await until(is_tried_by_one, "the tries to become one", RECOVERED_SECONDS)
    await way.open()
    job = await house.closed(job_id, seconds=RECOVERED_SECONDS)
    assert job.status is JobStatus.COMPLETED
    assert [event.state for event in job.events if event.stage == FINISH] == ["fail", "running", "success"]
    lines = (await house.content(job.control_group_csv_path)).decode().splitlines()
    everybody = [f"u{number}" for number in range(1, USERS + 1)]
    assert set(lines[1:]) == held_out(everybody, job_id, SHARE, by_rank=False)
    await nothing_is_left(house)
