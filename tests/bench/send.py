"""A job over a million devices by one worker process, beside Kafka's own tool on the same broker."""

from collections.abc import Sequence

from msgspec import Struct

from tests.bench import kafka_tool
from tests.bench.audience import RECORD_BYTES, fill, payloads
from tests.bench.jobs import check_sums, closed
from tests.bench.kafka_tool import LARGE, LETTERS, RECORDS, TRANSACTIONS, ToolRun, Way
from tests.bench.machine import Meter, memory
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.topics import Topic
from tests.e2e.house import House

CODECS = ("none", "zstd")
_WAYS = (LETTERS, RECORDS, LARGE, TRANSACTIONS)
_LEAST = {("none", RECORDS.name): 1.1, ("none", TRANSACTIONS.name): 0.9, ("zstd", TRANSACTIONS.name): 0.8}
"""Of the tool's rate, by codec and way."""
_MOST_CPU_SECONDS, _MOST_MB = 2.0, 190  # a million records
_WARM_UP = 300_000


class SendRun(Struct, frozen=True):
    """Records a second, CPU seconds by process, and the worker's peak memory in MB."""

    rate: float
    cpu_seconds: dict[str, float]
    peak_mb: float


async def measure(place: Place) -> list[Measured]:
    """Both codecs, each in turns with the tool."""
    async with place.house() as house:
        await fill(house, place.devices)
        topic = Topic(place.servers.kafka_servers, house.topic)
        await topic.create()
        records = await payloads(house, 20_000)
        # A broker that has just started is slow, whoever writes to it.
        await kafka_tool.run(place.servers.kafka_servers, records, _WARM_UP, "none", RECORDS)
        return [await _beside_the_tool(place, house, topic, records, codec) for codec in CODECS]


async def _beside_the_tool(place: Place, house: House, topic: Topic, records: Sequence[bytes], codec: str) -> Measured:
    ours: list[SendRun] = []
    tool: dict[Way, list[ToolRun]] = {way: [] for way in _WAYS}
    for _ in range(place.repeat):
        ours.append(await send(place, house, topic, codec))
        for way, runs in tool.items():
            runs.append(await kafka_tool.run(place.servers.kafka_servers, records, place.devices, codec, way))
    figures = [
        Figure("Carillon, one worker process", [run.rate for run in ours], "records/s"),
        *(_ratio(ours, runs, way, codec) for way, runs in tool.items()),
        *_our_figures(ours, place.devices, codec),
        *(figure for way, runs in tool.items() for figure in _tool_figures(way, runs)),
    ]
    note = (
        f"Records a second from the first record's append time to the last's, {place.devices:,} records of "
        f"{RECORD_BYTES} bytes, acks=all. Checked after each run: every device has exactly one committed record. The "
        "tool is idempotent and goes by its own defaults but for what is named."
    )
    return Measured(f"send, compression {codec}", figures, [note])


def _ratio(ours: Sequence[SendRun], tool: Sequence[ToolRun], way: Way, codec: str) -> Figure:
    ratios = [mine.rate / its.rate for mine, its in zip(ours, tool, strict=True)]
    least = _LEAST.get((codec, way.name))
    return Figure(f"Carillon / {way.name}", ratios, target=Target(least) if least else None)


def _tool_figures(way: Way, runs: Sequence[ToolRun]) -> list[Figure]:
    return [
        Figure(way.name, [run.rate for run in runs], "records/s"),
        Figure(f"{way.name}: as it says itself", [run.told for run in runs], "records/s"),
        Figure(f"{way.name}: CPU", [run.cpu_seconds for run in runs], "s"),
    ]


def _our_figures(runs: Sequence[SendRun], devices: int, codec: str) -> list[Figure]:
    a_million = [run.cpu_seconds["worker"] / devices * 1e6 for run in runs]
    most = Target(_MOST_CPU_SECONDS, at_most=True) if codec == "none" else None
    return [
        Figure("worker, peak memory", [run.peak_mb for run in runs], "MB", Target(_MOST_MB, at_most=True)),
        Figure("worker, CPU a million records", a_million, "s", most),
        *(Figure(f"CPU of {name}", [run.cpu_seconds[name] for run in runs], "s") for name in runs[0].cpu_seconds),
    ]


async def send(place: Place, house: House, topic: Topic, codec: str, **settings: str) -> SendRun:
    """One job, by one worker process that has done nothing before, with these settings."""
    since = await topic.ends()
    worker = await house.start("worker", CARILLON_STREAM_COMPRESSION=codec, **settings)
    meter = Meter({"worker": worker.pid, **place.pids})
    job = await closed(house, await house.post())
    used, peak = meter.used(), memory(worker.pid).peak
    await worker.end()
    check_sums(job, place.devices)
    appended = await topic.appended(since)
    if appended is None:
        raise Wrong("nothing was sent")
    await topic.check(since, devices=place.devices, size=RECORD_BYTES)
    return SendRun(appended.rate(place.devices), used, peak)
