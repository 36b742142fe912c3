"""Audiences in files: each user of the file once, wherever a cut falls and however often they stand in it."""

import random
import signal
from collections import Counter

import pytest

from shared.jobs.rules.events import EventState
from shared.jobs.rules.jobs import JobStatus
from tests.drivers.blobs.answers import answering, refusal
from tests.e2e.house import House
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.native]

TWO_DEVICES = "UPDATE {table} SET user_id = 'u' || (seq_id + 1) / 2"


def users(*numbers: int) -> bytes:
    return b"".join(b"u%d\n" % number for number in numbers)


async def test_every_user_of_a_file_gets_it_on_every_device_and_nobody_else_does(house: House) -> None:
    """3,500 rows of which 500 repeat and 100 are unknown; a user has two devices."""
    await house.devices(8_000)
    await house.change_devices(TWO_DEVICES)
    rows = [*range(1, 2_901), *(f"x{n}" for n in range(100)), *range(1, 501)]
    random.Random(5).shuffle(rows)
    content = b"userIds\r\n" + b"".join(f"{'u' if isinstance(row, int) else ''}{row}\r\n".encode() for row in rows)
    await house.start("worker")
    job_id = await house.post(csv_path=await house.file(content))
    await house.exactly_once(job_id, 5_800)
    job = await house.closed(job_id)
    assert job.totals is not None
    assert (job.totals.unknown, job.totals.batches) == (100, 4)
    tokens = await house.sent_per_device(5_800)
    assert {int(token, 16) for token in tokens} == set(range(1, 5_801))
    plan = await house.servers.store.files.plan(job.file_plan_id)
    assert plan is not None
    assert (plan.users, plan.repeated) == (3_000, 500)


async def test_every_position_of_a_cut(house: House) -> None:
    """One small file of all line ends, with quotes, repeats and strangers, cut behind each of its records by turns."""
    await house.devices(8)
    content = b'id,n\r\nu1,1\r\n"u2",2\nu3,"a\r\nb"\ru1,4\r\nx,5\n"u4",6\r\nu2,7\ru5,8\nu5,9\r\nu6,10'
    path = await house.file(content)
    file = await house.servers.blobs.stat(path)
    await house.start("worker")
    cuts = range(1, 11)
    for records in cuts:
        job = house.job(csv_path=path, context={"who": f"cut {records}"})
        await house.servers.store.files.begin(job.file_plan_id, file, cut_records=records)
        await house.jobs.start(job)
        done = await house.closed(job.id)
        assert done.totals is not None
        assert (done.totals.sent, done.totals.unknown, done.totals.batches) == (6, 1, -(-10 // records))
    found = Counter(
        (record["DeviceToken"], record["Payload"]["aps"]["alert"]) for record in await house.records(6 * len(cuts))
    )
    assert len(found) == 6 * len(cuts)
    assert set(found.values()) == {1}


@pytest.mark.slow
async def test_a_million_ids(house: House) -> None:
    """One in a hundred is known: what is many here are the rows, the cuts and the repeats."""
    await house.devices(20_000)
    numbers = [number for number in range(1_000_000) if number % 2] * 2
    content = b"id,name\n" + b"".join(b'"u%d",x\n' % number for number in numbers)
    await house.start("worker", CARILLON_WORKER_BATCH_SIZE="5000")
    job_id = await house.post(csv_path=await house.file(content))
    await house.exactly_once(job_id, 10_000)
    job = await house.closed(job_id)
    assert job.totals is not None
    assert job.totals.unknown == 490_000


@pytest.mark.parametrize(
    ("column", "spellings"),
    [
        ("uuid USING lpad(to_hex(seq_id), 32, 'a')::uuid", ("{:a>32x}", "{:A>32X}")),
        ("bigint USING seq_id", ("{}", "0{}")),
    ],
)
async def test_two_spellings_of_a_user_in_two_cuts_are_one_user(
    house: House, column: str, spellings: tuple[str, str]
) -> None:
    await house.devices(1_500)
    await house.change_devices(f"ALTER TABLE {{table}} ALTER user_id TYPE {column}")
    first, second = spellings
    rows = [*(first.format(n) for n in range(1, 1_001)), *(second.format(n) for n in range(1, 501))]
    await house.start("worker")
    job_id = await house.post(csv_path=await house.file(b"id\n" + "\n".join(rows).encode()))
    await house.exactly_once(job_id, 1_000)
    job = await house.closed(job_id)
    assert job.totals is not None
    assert (job.totals.sent, job.totals.unknown) == (1_000, 0)


async def test_a_column_that_became_unfit_for_files_stops_the_job(house: House) -> None:
    await house.devices(10)
    await house.change_devices("ALTER TABLE {table} ALTER user_id TYPE character(8)")
    await house.start("worker", CARILLON_WORKER_GRACE_SECONDS="0")
    job_id = await house.post(csv_path=await house.file(b"id\nu1\n"))
    job = await house.closed(job_id)
    assert job.status is JobStatus.STOPPED
    assert "is bpchar; a csvPath needs" in job.events[-1].message


async def test_pause_and_resume_in_the_middle_of_a_file(house: House) -> None:
    await house.devices(20_000)
    worker = await house.start("worker", fault="send.after_take@6=stop")
    job_id = await house.post(csv_path=await house.file(b"id\n" + users(*range(1, 20_001))))
    await worker.reached("send.after_take")
    assert await house.jobs.pause(job_id) is not None
    worker.send(signal.SIGCONT)
    await until(lambda: _quiet(house, job_id), "what is in flight to settle")
    sent = (await house.servers.store.batch_sums.totals([job_id]))[job_id].sent
    assert 6_000 <= sent < 20_000
    assert await house.jobs.resume(job_id) is not None
    await house.exactly_once(job_id, 20_000)


async def _quiet(house: House, job_id: str) -> bool:
    batches = [batch async for batch in house.servers.store.batch_sums.read_settled(job_id)]
    heads = await house.servers.store.batches.heads(job_id)
    return bool(batches) and all(head.planned for head in heads)


async def test_a_file_in_which_nobody_is_known_stops_the_job(house: House) -> None:
    await house.devices(10)
    await house.start("worker")
    job_id = await house.post(csv_path=await house.file(b"id\nx1\nx2\nx1\n"))
    job = await house.closed(job_id)
    assert job.status is JobStatus.STOPPED
    assert job.failure == "none of the 2 users in the file has a device"
    assert job.completed_at == job.updated_at > 0
    assert job.events[-1].state == "fail"
    assert job.events[-1].message == job.failure


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"id\nu1\nu\x00\n", "line 3"),
        (b"id\n" + b"u" * 2_000_000, "line 2"),
        pytest.param(b"id\n", "no rows", marks=pytest.mark.slow),
        pytest.param(b"id\nu1\n\xff\n", "line 3", marks=pytest.mark.slow),
        pytest.param(b"id\nu1\nu2,x\n", "line 3", marks=pytest.mark.slow),
        pytest.param(b'id\nu1\n"u2\n', "line 3", marks=pytest.mark.slow),
    ],
    ids=["empty", "NUL", "long line", "header only", "no UTF-8", "uneven", "open quote"],
)
async def test_a_broken_file_sends_nothing_and_says_where(house: House, content: bytes, reason: str) -> None:
    await house.devices(10)
    await house.start("worker")
    job_id = await house.post(csv_path=await house.file(content))
    job = await house.closed(job_id)
    assert (job.status, job.plan.end) == (JobStatus.STOPPED, 0)
    assert reason in job.failure
    assert [(event.state, event.message) for event in job.events][-1] == ("fail", job.failure)


@pytest.mark.parametrize("code", and_rarely("AccessDenied", rarely=("InvalidAccessKeyId",)))
async def test_a_job_over_a_file_that_we_are_denied_says_so_and_goes_on_once_somebody_has_mended_it(
    house: House, code: str
) -> None:
    await house.devices(10)
    path = await house.file(b"id\nu1\nu2\n")
    async with answering(lambda asked: refusal(asked, 403, code)) as url:
        denied = await house.start("worker", CARILLON_BLOBS_ENDPOINT_URL=url)
        job_id = await house.post(csv_path=path)

        async def told() -> bool:
            job = await house.servers.store.jobs.get(job_id)
            return job is not None and any(event.state is EventState.FAIL for event in job.events)

        await until(told, "the denial to stand among the events")
        await denied.end()
    await house.start("worker")
    await house.start("scheduler")
    await house.exactly_once(job_id, 2)
    job = await house.closed(job_id)
    assert job.status is JobStatus.COMPLETED
    [failure] = [event.message for event in job.events if event.state is EventState.FAIL]
    assert failure.startswith(f"{path}: S3 ")
    assert failure.endswith("; it is tried again for 10 minutes")


async def test_a_file_that_is_gone_or_changed_stops_the_job(house: House) -> None:
    await house.devices(20_000)
    worker = await house.start("worker", fault="send.after_take@2=stop")
    gone = await house.post(csv_path="carillon/nothing/here.csv")
    assert (await house.closed(gone)).status is JobStatus.STOPPED
    content = b"id\n" + users(*range(1, 20_001))
    job_id = await house.post(csv_path=await house.file(content))
    assert await house.jobs.pause(job_id) is not None

    async def is_planned() -> bool:
        job = await house.servers.store.jobs.view(job_id)
        return job is not None and job.plan.end is not None

    await until(is_planned, "the plan")
    assert await house.jobs.resume(job_id) is not None
    await worker.reached("send.after_take")
    await house.file(content.replace(b"u20000", b"u19999"))
    worker.send(signal.SIGCONT)
    job = await house.closed(job_id)
    assert job.status is JobStatus.STOPPED
    assert "changed" in job.failure
    assert job.totals is not None
    assert job.totals.sent < 20_000
