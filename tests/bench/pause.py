"""How long records still come after a pause was answered, and whether a job that was paused sends each just once."""

import asyncio

from shared.jobs.rules.batches import BatchStatus
from tests.bench import api
from tests.bench.api import Api
from tests.bench.audience import RECORD_BYTES, fill
from tests.bench.jobs import check_sums, closed
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.topics import Topic
from tests.e2e.house import House
from tests.waiting import until

_PAUSES = 5
_QUIET_SECONDS = 2.0


async def measure(place: Place) -> list[Measured]:
    """One job over the whole audience, paused several times on its way."""
    async with place.house() as house:
        await fill(house, place.devices)
        topic = Topic(place.servers.kafka_servers, house.topic)
        await topic.create()
        since = await topic.ends()
        for service in ("worker", "scheduler"):
            await house.start(service)
        client = await api.started(house)
        job_id = (await client.post_job()).body["id"]
        lags = []
        for number in range(1, _PAUSES + 1):
            await _sent(house, job_id, place.devices * number // (_PAUSES + 2))
            lags.append(await _paused(house, client, topic, job_id))
        check_sums(await closed(house, job_id), place.devices)
        await topic.check(since, devices=place.devices, size=RECORD_BYTES)
    note = (
        "From the answer of PUT pause to the append time of the last record before the resume. Checked: nothing comes "
        f"in the {_QUIET_SECONDS:g} s after, and in the end every device has exactly one committed record."
    )
    return [Measured("pause", [Figure("records still come for", lags, "ms", Target(1000, at_most=True))], [note])]


async def _paused(house: House, client: Api, topic: Topic, job_id: str) -> float:
    """Pause and resume the job; for how many ms records came after the pause was answered."""
    before = await topic.ends()
    answered = await client.move(job_id, "pause")
    await _quiet(house, job_id, topic)
    appended = await topic.appended(before)
    await client.move(job_id, "resume")
    return max(appended.last - answered.ended, 0) if appended else 0


async def _sent(house: House, job_id: str, devices: int) -> None:
    async def enough() -> bool:
        await asyncio.sleep(0.05)
        totals = await house.servers.store.batch_sums.totals([job_id])
        return job_id in totals and totals[job_id].sent >= devices

    await until(enough, f"{devices:,} records", 120)


async def _quiet(house: House, job_id: str, topic: Topic) -> None:
    """Wait until no lane owns a batch of the job, and see that nothing more comes."""

    async def unowned() -> bool:
        return not (await house.servers.store.batches.find_on_their_way(job_id))[BatchStatus.SENDING]

    await until(unowned, "the batches that were being sent", 30)
    ends = await topic.ends()
    await asyncio.sleep(_QUIET_SECONDS)
    if await topic.ends() != ends:
        raise Wrong("records came long after the pause")
