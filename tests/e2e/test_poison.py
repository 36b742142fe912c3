"""Messages that no worker can read, or that name unknown work, in every queue: workers drop them, and jobs go on."""

import json
import uuid

import pytest

from shared.core.tasks import Task, encode
from shared.jobs.rules.jobs import BATCH_QUEUE, FINISH_QUEUE, SPLIT_QUEUE, FinishJob, PlanJob, SendBatch
from tests.e2e.house import House
from tests.queues import QUEUES
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.native]

SLOW = ",".join(f"send.after_take@{n}=delay:0.1" for n in range(1, 30))
OF_NOBODY = "6e6f7468-696e-4720-8000-000000000000"


def unreadable(job_id: str) -> list[bytes]:
    """Not JSON, not an object, of no known type, of a later version, incomplete, and of the wrong types."""
    later = {"type": "send", "job_id": job_id, "ordinal": 0, "turn": 1, "version": 2}
    return [
        b"\xff\x00\xfe garbage",
        b"",
        b"[1, 2]",
        json.dumps({"type": "explode", "job_id": job_id}).encode(),
        json.dumps(later).encode(),
        json.dumps({"type": "plan", "job_id": job_id, "version": 2}).encode(),
        json.dumps({"type": "send", "job_id": job_id}).encode(),
        json.dumps({"type": "finish", "job_id": 7}).encode(),
        b"[" * 100_000,
    ]


async def test_unreadable_messages_are_dropped(house: House) -> None:
    await house.devices(20_000)
    worker = await house.start("worker", fault=SLOW)
    job_id = await house.post()
    bodies = unreadable(job_id)
    for body in bodies:
        for queue in QUEUES:
            await house.servers.broker.publish(queue, body)
    await house.exactly_once(job_id, 20_000)

    dropped = len(bodies) * len(QUEUES)
    await until(lambda: worker.log.count("poisoned message") == dropped, "all unreadable messages to be dropped")
    await all_are_empty(house)
    await one_more_job(house, before=20_000)


async def all_are_empty(house: House) -> None:
    for queue in QUEUES:
        assert await house.servers.broker.depth(queue) == 0


async def test_tasks_that_name_nothing_there_is_vanish(house: House) -> None:
    await house.devices(20_000)
    await house.start("worker", fault=SLOW)
    job_id = await house.post()
    strays: list[tuple[str, Task]] = [
        (SPLIT_QUEUE, PlanJob(OF_NOBODY)),
        (BATCH_QUEUE, SendBatch(OF_NOBODY, 0, 1)),
        (BATCH_QUEUE, SendBatch(job_id, 99_999, 1)),
        (BATCH_QUEUE, SendBatch(job_id, -1, 1)),
        (BATCH_QUEUE, SendBatch(job_id, 3, 99)),
        (FINISH_QUEUE, FinishJob(OF_NOBODY)),
        (FINISH_QUEUE, FinishJob(str(uuid.uuid4()))),
        (FINISH_QUEUE, FinishJob("' OR 1=1 --\n{{who}}")),
        # Far too early.
        (FINISH_QUEUE, FinishJob(job_id)),
    ]
    for queue, task in strays:
        await house.servers.broker.publish(queue, encode(task))
    await house.exactly_once(job_id, 20_000)
    await one_more_job(house, before=20_000)
    await all_are_empty(house)


async def test_tasks_in_the_wrong_queue_do_no_harm(house: House) -> None:
    await house.devices(20_000)
    await house.start("worker", fault=SLOW)
    job_id = await house.post()
    for queue in QUEUES:
        for task in (PlanJob(job_id), SendBatch(job_id, 2, 1), FinishJob(job_id)):
            await house.servers.broker.publish(queue, encode(task))
    await house.exactly_once(job_id, 20_000)
    await one_more_job(house, before=20_000)


async def one_more_job(house: House, *, before: int) -> None:
    """The consumers still work: another job comes to its end."""
    job_id = await house.post(filters={"locale": "pt"})
    job = await house.closed(job_id)
    assert job.totals is not None
    assert job.totals.sent == before // 3
    jobs = [record["metadata"]["jobId"] for record in await house.records(before + before // 3)]
    assert (jobs.count(job.id), len(jobs)) == (before // 3, before + before // 3)
