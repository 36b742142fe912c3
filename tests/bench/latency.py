"""How long a POST of a job takes, and how long until the job's first record is on Kafka, when nothing else runs."""

import asyncio
from statistics import median, quantiles

from tests.bench import api
from tests.bench.api import Api
from tests.bench.audience import KEPT, fill
from tests.bench.jobs import closed
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.topics import Topic
from tests.e2e.house import House
from tests.waiting import until

_POSTS = 50
_JOBS = 10


async def measure(place: Place) -> list[Measured]:
    """One job after the other, each over the whole audience with a filter, each stopped once it sends."""
    async with place.house() as house:
        await fill(house, place.devices)
        topic = Topic(place.servers.kafka_servers, house.topic)
        await topic.create()
        for service in ("worker", "scheduler"):
            await house.start(service)
        client = await api.started(house)
        firsts = [await _first_record(house, client, topic) for _ in range(_JOBS)]
        posts = [await _post(house, client) for _ in range(_POSTS + 5)][5:]
    figures = [
        Figure("POST, median", [median(posts)], "ms"),
        Figure("POST, 99th of 100", [quantiles(posts, n=100, method="inclusive")[98]], "ms", Target(50, at_most=True)),
        Figure("POST, longest", [max(posts)], "ms"),
        Figure("from POST to the first record, median", [median(firsts)], "ms", Target(500, at_most=True)),
        Figure("from POST to the first record, longest", [max(firsts)], "ms", Target(500, at_most=True)),
        Figure("from POST to the first record, the worker's very first job", [firsts[0]], "ms"),
    ]
    note = (
        f"{_POSTS} posts on a warm API, over one connection, each after the job before it had ended; then as the "
        f"first record's append time minus the start of its POST, for {_JOBS} jobs with a filter over "
        f"{place.devices:,} devices. API, worker and scheduler run, and nothing else."
    )
    return [Measured("latency", figures, [note])]


async def _post(house: House, client: Api) -> float:
    """Milliseconds; the audience is one device's worth, so that the system is idle again at once."""
    answered = await client.post_job(filters={"seq_id": "1"})
    await closed(house, answered.body["id"], every=0.02)
    return answered.seconds * 1000


async def _first_record(house: House, client: Api, topic: Topic) -> float:
    since = await topic.ends()
    await asyncio.sleep(0.5)
    answered = await client.post_job(filters=KEPT)
    job_id = answered.body["id"]

    async def sends() -> bool:
        await asyncio.sleep(0.05)
        totals = await house.servers.store.batch_sums.totals([job_id])
        return job_id in totals and totals[job_id].sent > 0

    await until(sends, "a batch to be sent", 30)
    await client.move(job_id, "stop")
    await closed(house, job_id)
    appended = await topic.appended(since)
    if appended is None:
        raise Wrong("a batch counts as sent and no record is there")
    return appended.first - answered.began
