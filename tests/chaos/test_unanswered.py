"""Replies that do not come, reads that fail, tasks that come twice or not at all."""

import asyncio
from datetime import timedelta
from itertools import chain

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from shared.jobs.rules.batches import BatchStatus
from shared.jobs.rules.jobs import SendBatch
from tests.drivers.rabbitmq.administration import Administration
from tests.e2e.house import House
from tests.queues import QUEUES
from tests.stack import Endpoints
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native, pytest.mark.usefixtures("hasty")]


@pytest.mark.parametrize(
    "fault",
    and_rarely(
        "stream.commit_reply=raise,stream.marker_read=raise",
        "stream.commit_reply@2=hang,stream.marker_read=hang",
        "stream.produce_one@5=raise",
        rarely=("stream.commit_reply=hang", "stream.commit_reply=raise"),
    ),
)
async def test_kafka_does_not_answer(house: House, fault: str) -> None:
    await house.devices(8_000)
    await house.start("worker", fault=fault)
    await house.start("scheduler")
    await house.exactly_once(await house.post(), 8_000)


async def test_every_task_comes_twice(house: House) -> None:
    await house.devices(16_000)
    await house.start("worker")
    await house.start("worker")
    job_id = await house.post()
    await until(lambda: doubled(house, job_id), "tasks to double")
    await house.start("scheduler")
    await house.exactly_once(job_id, 16_000)


async def doubled(house: House, job_id: str) -> bool:
    """Publish once more whatever is on its way now; whether the job has come to its end."""
    batches = house.servers.store.batches
    for batch in chain.from_iterable((await batches.find_on_their_way(job_id)).values()):
        await house.feed.publish(SendBatch(job_id, batch.ordinal, batch.turn))
    standing = await house.servers.store.jobs.get_standing(job_id)
    return standing is not None and standing.end is not None and not await batches.has_unsettled(job_id)


async def test_the_queues_are_purged(house: House) -> None:
    await house.devices(40_000)
    await house.start("scheduler")
    await house.start("worker", fault=",".join(f"send.after_take@{n}=delay:0.1" for n in range(1, 30)))
    job_id = await house.post()
    for _ in range(10):
        for queue in QUEUES:
            await house.servers.broker.purge(queue)
        await asyncio.sleep(0.1)  # so that the purges fall on different moments of the job
    await house.exactly_once(job_id, 40_000)


async def test_connections_to_rabbitmq_are_cut(house: House, stack: Endpoints, rabbit_vhost: str) -> None:
    await house.devices(40_000)
    await house.start("scheduler")
    slow = ",".join(f"send.after_take@{n}=delay:0.2" for n in range(1, 30))
    for _ in range(2):
        await house.start("worker", fault=slow)
    management = Administration(stack.rabbit_management_url, rabbit_vhost)
    job_id = await house.post()
    cut: list[str] = []

    async def six_are_cut() -> bool:
        for name in (await management.connections()).values():
            await management.cut(name)
            cut.append(name)
        await asyncio.sleep(0.2)  # the management API lists a new connection only after a moment
        return len(cut) >= 6

    await until(six_are_cut, "six connections to be cut")
    await house.exactly_once(job_id, 40_000)


async def test_what_nobody_can_know_any_more_is_not_sent_again(house: House) -> None:
    """A batch whose owner took it longer ago than its marker is kept fails, as `outcome-unknown`."""
    await house.devices(12_000)
    doomed = await house.start("worker", fault="send.after_take@2=kill")
    job_id = await house.post()
    await doomed.gone()
    long_ago = await house.servers.store.now() - timedelta(days=8)
    batches = house.servers.store.batches._batches
    owned = await batches.count_documents({"job_id": job_id, "status": BatchStatus.SENDING.value})
    assert owned >= 1
    await batches.update_many({"status": BatchStatus.SENDING.value}, {"$set": {"taken_at": long_ago}})
    await house.start("worker")
    await house.start("scheduler")
    job = await house.closed(job_id)
    assert job.totals is not None
    unknown = job.reasons.get("outcome-unknown", 0)
    assert unknown in range(1_000, owned * 1_000 + 1, 1_000)
    assert (job.totals.sent, job.totals.failed) == (12_000 - unknown, unknown)
    per_device = await house.sent_per_device(12_000 - unknown)
    assert (len(per_device), set(per_device.values())) == (12_000 - unknown, {1})


async def test_records_that_kafka_refuses_fail_their_batches_and_nothing_else(house: House, stack: Endpoints) -> None:
    await house.devices(3_000)
    admin = AIOKafkaAdminClient(bootstrap_servers=stack.kafka_servers)
    await admin.start()
    await admin.create_topics([NewTopic(house.topic, 2, 1, topic_configs={"max.message.bytes": "5000"})])
    await admin.close()
    await house.start("worker")
    await house.start("scheduler")
    job = await house.closed(await house.post())
    assert job.totals is not None
    assert (job.totals.sent, job.totals.failed, job.reasons) == (0, 3_000, {"refused": 3_000})
    assert await house.records(0) == []
