"""The verdict on a storm, counted on Kafka and on a user's queue."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from shared.jobs.rules.jobs import Job, JobStatus, split_key
from tests.chaos.storm.customers import DEVICES, QUEUE, Planners
from tests.chaos.test_clock_killed import drained
from tests.e2e.clocks import receiving
from tests.e2e.house import House


async def judge_jobs(house: House, keys: Sequence[str]) -> dict[JobStatus, int]:
    """Every device has exactly one record of each completed job, and at most one of each stopped one, whose totals are
    exact. How many jobs ended in which way."""
    jobs = [await house.closed(key) for key in keys]
    records: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in await house.records(sum(_sent(job) for job in jobs)):
        records[record["metadata"]["jobId"]][record["DeviceToken"]] += 1
    for job in jobs:
        devices = records.pop(split_key(job.key)[0], Counter())
        assert set(devices.values()) <= {1}, f"{job.id} sent {devices.most_common(3)}"
        assert len(devices) == _sent(job), f"{job.id} has {len(devices)} records: {job}"
        assert job.status is JobStatus.STOPPED or len(devices) == DEVICES, job
    assert not records
    return Counter(job.status for job in jobs)


async def judge_schedules(house: House, planners: Planners) -> Counter[int]:
    """Every instant that was promised came, under one message id each, and none came that nobody asked for. How many
    came how often."""
    async with receiving(house, QUEUE) as receiver:
        await receiver.got(len(planners.promised), seconds=120)
        await drained(house, receiver, QUEUE)
    came = set(receiver.instants)
    assert planners.promised <= came, sorted(planners.promised - came)[:5]
    assert came <= planners.promised | planners.deleted, sorted(came - planners.promised - planners.deleted)[:5]
    assert set(receiver.instants.values()) == {1}
    return Counter(receiver.times.values())


def _sent(job: Job) -> int:
    assert job.totals is not None
    assert job.totals.failed == 0, job
    return job.totals.sent
