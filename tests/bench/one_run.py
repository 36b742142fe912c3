"""One run of one measure on the checkout that it is started in: what `tests.bench.pairs` reads is the last line, JSON.

It is passed to an interpreter as text, since the other checkout may be too old to have it: so it uses nothing but what
every checkout since the first version has.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter

from tests.bench import accept, bus, claim, csv_file, fairness, fire, lateness, messages, send
from tests.bench.arrivals import queue_of
from tests.bench.audience import fill
from tests.bench.jobs import check_sums, closed
from tests.bench.machine import Meter
from tests.bench.place import Place, execute, servers
from tests.bench.schedules import Sizes, clock_house
from tests.bench.topics import Topic

Figures = dict[str, float]


async def run_send(place: Place, size: int) -> Figures:
    """A job over a push table, by one worker process."""
    async with place.house() as house:
        await fill(house, size)
        topic = Topic(place.servers.kafka_servers, house.topic)
        await topic.create()
        run = await send.send(place, house, topic, "none")
    return {"CPU seconds": run.cpu_seconds["worker"], "rate": run.rate}


async def run_csv(place: Place, size: int) -> Figures:
    """A job over a file, by one worker process."""
    with tempfile.TemporaryDirectory() as folder:
        async with place.house(CARILLON_BLOBS_URL=Path(folder).as_uri()) as house:
            await fill(house, size)
            push_database = house.environment["CARILLON_AUDIENCE_URL"]
            await execute(push_database, f'CREATE INDEX ON "{house.app}_apns" (user_id)', "VACUUM ANALYZE")
            await Topic(place.servers.kafka_servers, house.topic).create()
            await csv_file._write(house, Path(folder), push_database)
            worker = await house.start("worker")
            meter, began = Meter({"worker": worker.pid}), perf_counter()
            job = await closed(house, await house.post(**csv_file._over_the_file(house)), every=0.02)
            lasted = perf_counter() - began
            used = meter.used()
            check_sums(job, size)
    return {"CPU seconds": used["worker"], "rate": size / lasted}


async def run_fire(place: Place, size: int) -> Figures:
    """A backlog that is due at one moment, by one scheduler process."""
    async with clock_house(place) as house, queue_of(house) as queue:
        run = await fire.fired(place, house, queue, size, processes=1)
    return {"CPU seconds": run.cpu_seconds["scheduler"], "rate": run.rate}


async def run_messages(place: Place, size: int) -> Figures:
    """A job of messages at 5,000 a second, by one worker process and a provider that answers at once."""
    messages._RECIPIENTS = size
    rate, _, _, cpu = await messages._send_all(place, 5_000.0, 1)
    return {"CPU seconds": cpu * size / 10_000, "rate": rate}


async def run_bus(place: Place, size: int) -> Figures:
    """Deliveries of 10 events each from 10 queues to one receiver, by one worker process."""
    measured = await bus._measure_deliveries(place, bus._Shape(10, size // 100, 10, 0))
    figures = {figure.what: figure.values[0] for figure in measured.figures}
    return {"CPU seconds": figures["CPU of worker"], "rate": figures["deliveries"]}


async def run_accept(place: Place, size: int) -> Figures:
    """Schedules, one a request, by two API processes."""
    async with accept._scene(place) as scene:
        run = await scene.single(size, 0, 32)
    used = sum(seconds for name, seconds in run.cpu_seconds.items() if name.startswith("api"))
    return {"CPU seconds": used, "rate": run.rate}


async def run_bulk(place: Place, size: int) -> Figures:
    """Items of one timestamp in two requests at once, one to each of two API processes."""
    async with accept._scene(place) as scene:
        run = await scene.bulk(size, 1, accept._JSON, 2)
    used = sum(seconds for name, seconds in run.cpu_seconds.items() if name.startswith("api"))
    return {"CPU seconds": used, "rate": 2 * size / run.load.seconds}


async def run_fairness(place: Place, size: int) -> Figures:
    """One call a second of a caller beside so many of another one whose target is silent."""
    before = getrusage(RUSAGE_CHILDREN)
    async with clock_house(place) as house:
        late = sorted(await fairness._beside_silence(house, size))
    after = getrusage(RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"CPU seconds": used, "median lateness (s)": late[len(late) // 2], "longest (s)": late[-1]}


async def run_claim(place: Place, size: int) -> Figures:
    """A backlog that is claimed, read and completed, by one clock that fires nothing."""
    async with clock_house(place) as house:
        await claim._backlog(house, size)
        run = await claim._in_a_process(house, size)
    return {"CPU seconds": run.cpu_seconds, "rate": run.entries / run.seconds}


async def run_lateness(place: Place, size: int) -> Figures:
    """200 instants a second, by one scheduler process that has little else to do."""
    [measured] = await lateness.measure(place, Sizes())
    figures = {figure.what: figure.values[0] for figure in measured.figures}
    late = "arrival at the consumer, "
    return {
        "CPU seconds": figures["CPU of scheduler, over the whole time"],
        "median lateness (ms)": figures[f"{late}median"],
        "99th lateness of 100 (ms)": figures[f"{late}99th of 100"],
    }


def main() -> None:
    """Run the measure that the command line names, at the size that it names."""
    name, size = sys.argv[1], int(sys.argv[2])
    measures = {
        "send": run_send,
        "csv": run_csv,
        "messages": run_messages,
        "bus": run_bus,
        "fire": run_fire,
        "claim": run_claim,
        "accept": run_accept,
        "bulk": run_bulk,
        "fairness": run_fairness,
        "lateness": run_lateness,
    }
    with servers(keep=True) as endpoints:
        figures = asyncio.run(measures[name](Place(endpoints, size, 1), size))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
