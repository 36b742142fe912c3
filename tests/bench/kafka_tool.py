"""Kafka's own ProducerPerformance, on the same broker: how fast its Java producer sends records like ours.

By itself it makes up records of random letters, which costs it time and compresses in another way; given our records,
it chooses from these, which costs it nothing. What it says of its rate begins when its producer is ready; the append
times are the same measure as ours.
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


class Way(Struct, frozen=True):
    """A way to use it, by the name in the report: whether it gets our records, and what differs from its defaults."""

    name: str
    our_records: bool = True
    options: tuple[str, ...] = ()
    producer: tuple[str, ...] = ()


_LARGE = ("batch.size=262144",)
# Commits after about as many records as a batch of ours has.
_TRANSACTIONS = ("--transactional-id", "bench-tool", "--transaction-duration-ms", "25")
LETTERS = Way("the tool, random letters", our_records=False)
RECORDS = Way("the tool, our records")
LARGE = Way("the tool, our records, batches of 256 KiB", producer=_LARGE)
TRANSACTIONS = Way("the tool, our records, batches of 256 KiB, transactions", options=_TRANSACTIONS, producer=_LARGE)


class ToolRun(Struct, frozen=True):
    """Records a second by append times and by its own account, and its CPU seconds."""

    rate: float
    told: float
    cpu_seconds: float


async def run(servers: str, records: Sequence[bytes], count: int, codec: str, way: Way) -> ToolRun:
    """Send `count` records with acks=all; `records` are ours to choose from."""
    topic = Topic(servers, f"bench-tool-{os.urandom(4).hex()}")
    await topic.create()
    since = await topic.ends()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "payloads"
        file.write_bytes(b"\n".join(records))
        content = ("--payload-file", str(file)) if way.our_records else ("--record-size", str(RECORD_BYTES))
        producer = (f"bootstrap.servers={servers}", "acks=all", f"compression.type={codec}", *way.producer)
        words = (*content, *way.options, "--producer-props", *producer)
        told, cpu = await asyncio.to_thread(_run, topic.name, count, words)
    appended = await topic.appended(since)
    await topic.delete()
    if appended is None or {len(record) for record in records} != {RECORD_BYTES}:
        raise Wrong("ProducerPerformance sent nothing, or other records than ours")
    return ToolRun(appended.rate(count), told, cpu)


def _run(topic: str, count: int, options: Sequence[str]) -> tuple[float, float]:
    """Its own rate, and its CPU seconds."""
    java = need_program("java", "default-jre-headless")
    command = [java, _MEMORY, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path()]
    command += ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(count)]
    command += ["--throughput", "-1", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    summaries = _SUMMARY.findall(said)
    if process.returncode or not summaries or int(summaries[-1][0]) != count:
        raise Wrong(f"ProducerPerformance failed: {said[-500:]}")
    return float(summaries[-1][1]), used.ru_utime + used.ru_stime
