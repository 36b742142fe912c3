"""One job's messages are lost while another job keeps their queue busy: that the queue is never empty must not keep
the first one waiting."""

import signal
from collections import Counter

import pytest

from shared.jobs.rules.batches import BatchStatus
from shared.jobs.rules.jobs import BATCH_QUEUE, JobStatus, split_key
from tests.e2e.house import House
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

LOST, BUSY = {"locale": "pt"}, {"locale": "en"}
DEVICES = 45_000
SENT = {"pt": DEVICES // 3, "en": DEVICES - DEVICES // 3}
# One lane, one batch at a time, seconds for each: the queue stays full for a minute.
SLOW = ",".join(f"send.after_take@{n}=delay:2" for n in range(1, 100))
IN_HAND = 8


async def lost_by_a_kill(house: House) -> str:
    """Queued in the store, and the process died before it published."""
    doomed = await house.start("worker", fault="feed.after_queue=kill")
    job_id = await house.post(filters=LOST)
    assert await doomed.gone() == -signal.SIGKILL
    return job_id


async def lost_by_the_broker(house: House) -> str:
    """All batches were on the broker, and it lost them."""
    holds = ",".join(f"send.before_take@{n}=hang" for n in range(1, IN_HAND + 1))
    doomed = await house.start("worker", fault=holds, CARILLON_WORKER_SENDS_IN_FLIGHT=str(IN_HAND))
    job_id = await house.post(filters=LOST)
    await until(lambda: all_are_queued(house, job_id), "the plan")
    doomed.send(signal.SIGKILL)
    await doomed.gone()
    await until(lambda: waits(house, SENT["pt"] // 1_000), "what the dead worker held to be back")
    await house.servers.broker.purge(BATCH_QUEUE)
    return job_id


async def all_are_queued(house: House, job_id: str) -> bool:
    standing = await house.servers.store.jobs.get_standing(job_id)
    heads = await house.servers.store.batches.heads(job_id)
    return standing is not None and standing.end is not None and not any(head.planned for head in heads)


async def waits(house: House, messages: int) -> bool:
    return await house.servers.broker.depth(BATCH_QUEUE) == messages


async def queued(house: House, job_id: str) -> list[int]:
    """The ordinals that the store believes to be on the broker."""
    found = [await house.servers.store.batches.get(job_id, ordinal) for ordinal in range(SENT["pt"] // 1_000)]
    return [batch.ordinal for batch in found if batch is not None and batch.status is BatchStatus.QUEUED]


@pytest.mark.slow
@pytest.mark.parametrize("lose", and_rarely(lost_by_a_kill, rarely=(lost_by_the_broker,)))
async def test_lost_messages_are_found_behind_a_busy_queue(house: House, lose: object) -> None:
    assert callable(lose)
    await house.devices(DEVICES)
    lost = await lose(house)
    missing = await queued(house, lost)
    assert missing
    busy = await house.post(filters=BUSY)
    await house.start("worker", fault=SLOW, CARILLON_WORKER_LANES="1", CARILLON_WORKER_SENDS_IN_FLIGHT="1")
    await until(lambda: is_deep(house), "the queue to be busy")
    await house.start("scheduler", CARILLON_SCHEDULER_STALE_SECONDS="0.5")

    async def is_found() -> bool:
        assert await house.servers.broker.depth(BATCH_QUEUE) > 0
        batches = [await house.servers.store.batches.get(lost, ordinal) for ordinal in missing]
        return all(batch is not None and batch.turn > 1 for batch in batches)

    await until(is_found, "the lost batches to be queued again")
    await house.start("worker")
    await each_once(house, {lost: SENT["pt"], busy: SENT["en"]})


async def is_deep(house: House) -> bool:
    return await house.servers.broker.depth(BATCH_QUEUE) > 10


async def each_once(house: House, expected: dict[str, int]) -> None:
    """Both jobs are completed, and every device has one record of the job that it belongs to."""
    for job_id, devices in expected.items():
        job = await house.closed(job_id)
        assert job.status is JobStatus.COMPLETED
        assert job.totals is not None
        assert (job.totals.planned, job.totals.sent, job.totals.failed) == (devices, devices, 0)
    records = await house.records(DEVICES)
    told = Counter({split_key(job_key)[0]: devices for job_key, devices in expected.items()})
    assert Counter(record["metadata"]["jobId"] for record in records) == told
    assert len({record["DeviceToken"] for record in records}) == len(records)
