"""Kafka's own ProducerPerformance, on the same broker: how fast its Java producer sends records like ours.

It gets real records to choose from, because the letters that it makes up by itself cost it time and compress in
another way. What it says of its rate begins when its producer is ready; the append times are the same measure as ours.
"""

import asyncio
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tests.bench.audience import RECORD_BYTES
from tests.bench.report import Wrong
from tests.bench.topics import Topic
from tests.stack.install import need_program
from tests.stack.kafka import class_path

_MEMORY = "-Xmx512M"  # as its own start script says
_SUMMARY = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")
# Commits after about as many records as a batch of ours has; without it the producer is only idempotent.
TRANSACTIONS = ("--transactional-id", "bench-tool", "--transaction-duration-ms", "25")
LARGE_BATCHES = ("batch.size=262144",)


class ToolRun(Struct, frozen=True):
    """Records a second by append times and by its own account, and its CPU seconds."""

    rate: float
    told: float
    cpu_seconds: float


async def run(
    servers: str,
    records: Sequence[bytes],
    count: int,
    codec: str,
    options: Sequence[str] = (),
    producer: Sequence[str] = (),
) -> ToolRun:
    """Send `count` records chosen from these, with acks=all; `producer` are further settings of the producer."""
    topic = Topic(servers, f"bench-tool-{os.urandom(4).hex()}")
    await topic.create()
    since = await topic.ends()
    properties = (f"bootstrap.servers={servers}", "acks=all", f"compression.type={codec}", *producer)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "payloads"
        file.write_bytes(b"\n".join(records))
        told, cpu = await asyncio.to_thread(_run, topic.name, count, file, (*options, "--producer-props", *properties))
    appended = await topic.appended(since)
    await topic.delete()
    if appended is None or {len(record) for record in records} != {RECORD_BYTES}:
        raise Wrong("ProducerPerformance sent nothing, or other records than ours")
    return ToolRun(appended.rate(count), told, cpu)


def _run(topic: str, count: int, payloads: Path, options: Sequence[str]) -> tuple[float, float]:
    """Its own rate, and its CPU seconds."""
    java = need_program("java", "default-jre-headless")
    command = [java, _MEMORY, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path()]
    command += ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(count)]
    command += ["--throughput", "-1", "--payload-file", str(payloads), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    summaries = _SUMMARY.findall(said)
    if process.returncode or not summaries or int(summaries[-1][0]) != count:
        raise Wrong(f"ProducerPerformance failed: {said[-500:]}")
    return float(summaries[-1][1]), used.ru_utime + used.ru_stime
