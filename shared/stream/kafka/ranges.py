"""Ranges of a topic's partitions, found by time, and their records, read without a group.

A range belongs to one log, known by its topic's id. The driver reads by the topic's name and would go on in a topic
that was created anew. So the reader asks for the ids after each fetch: records of another log are dropped, and the
range is over.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.structs import ConsumerRecord, TopicPartition

from shared.domain.documents import LogRange
from shared.domain.errors import Unavailable
from shared.domain.instants import ms
from shared.stream.kafka.cluster import close, connect
from shared.stream.kafka.servers import KafkaServers, answer_within, stop
from shared.stream.kafka.topics import name_of, partition_of, topic_ids
from shared.stream.reading import Chunk

_FETCH_SECONDS = 5.0
_MAX_RECORDS = 2_000
_MAX_BYTES, _MAX_PARTITION_BYTES = 8 * 2**20, 2**20


async def find_ranges(
    servers: KafkaServers,
    topic: str,
    *,
    since: datetime | None,
    until: datetime | None,
    client_id: str,
    timeout_seconds: float,
) -> Mapping[str, LogRange]:
    answered = answer_within(timeout_seconds)
    async with _connections(servers, f"{client_id}-ranges", timeout_seconds) as (consumer, client), answered:
        # Asked for now: the driver's own metadata may be older than the topic.
        found = (await client.fetch_all_metadata()).partitions_for_topic(topic) or ()
        partitions = [TopicPartition(topic, number) for number in found]
        consumer.assign(partitions)  # the consumer learns only the leaders of its assigned partitions
        consumer.pause(*partitions)
        firsts = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        begins = firsts if since is None else await _find(consumer, ends, since)
        until_then = ends if until is None else await _find(consumer, ends, until)
        log = (await topic_ids(client, [topic])).get(topic, "")
    return {
        name_of(each): LogRange(min(begins[each], ends[each]), min(until_then[each], ends[each]), log, firsts[each])
        for each in partitions
    }


@asynccontextmanager
async def open_ranges(
    servers: KafkaServers, ranges: Mapping[str, LogRange], *, client_id: str, timeout_seconds: float
) -> AsyncIterator["KafkaRangeReader"]:
    async with _connections(servers, f"{client_id}-replay", timeout_seconds) as (consumer, client):
        yield KafkaRangeReader(consumer, client, ranges)


class KafkaRangeReader:
    def __init__(self, consumer: AIOKafkaConsumer, client: AIOKafkaClient, ranges: Mapping[str, LogRange]) -> None:
        self._consumer = consumer
        self._client = client
        self._left = {partition_of(name): range for name, range in ranges.items() if range.begins < range.ends}
        if self._left:
            consumer.assign(list(self._left))
        for partition, range in self._left.items():
            consumer.seek(partition, range.begins)

    async def read(self, wait_seconds: float) -> list[Chunk]:
        if not self._left:
            return []
        async with answer_within(wait_seconds + _FETCH_SECONDS):
            found = await self._consumer.getmany(timeout_ms=int(wait_seconds * 1000), max_records=_MAX_RECORDS)
            positions = {partition: await self._consumer.position(partition) for partition in self._left}
            wanted = {partition.topic for partition in self._left}
            logs = await topic_ids(self._client, wanted)
            if missing := wanted - logs.keys():
                raise Unavailable(f"Kafka: a broker does not know the topic {min(missing)}")
        chunks = [
            self._chunk(partition, found.get(partition, []), position, logs.get(partition.topic, ""))
            for partition, position in positions.items()
        ]
        return [chunk for chunk in chunks if chunk is not None]

    def _chunk(self, partition: TopicPartition, records: list[ConsumerRecord], position: int, log: str) -> Chunk | None:
        range, name = self._left[partition], name_of(partition)
        mine = [record for record in records if range.begins <= record.offset < range.ends] if log == range.log else []
        is_read = log != range.log or position >= range.ends
        if is_read:
            self._consumer.pause(partition)
            del self._left[partition]
        elif not mine:
            return None
        upto = range.ends if is_read else mine[-1].offset + 1
        return Chunk(name, [record.offset for record in mine], upto, [record.value for record in mine])


async def _find(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int], at: datetime
) -> dict[TopicPartition, int]:
    """The offset of the first record of each partition that is not older than `at`; the end if there is none."""
    found = await consumer.offsets_for_times(dict.fromkeys(ends, max(ms(at), 0))) if ends else {}
    return {partition: end if (place := found[partition]) is None else place.offset for partition, end in ends.items()}


@asynccontextmanager
async def _connections(
    servers: KafkaServers, client_id: str, timeout_seconds: float
) -> AsyncIterator[tuple[AIOKafkaConsumer, AIOKafkaClient]]:
    consumer = AIOKafkaConsumer(
        **servers.options(client_id),
        isolation_level="read_committed",
        enable_auto_commit=False,
        # If the first records of a range are gone, reading begins at the earliest that exists.
        auto_offset_reset="earliest",
        fetch_max_bytes=_MAX_BYTES,
        max_partition_fetch_bytes=_MAX_PARTITION_BYTES,
    )
    client: AIOKafkaClient | None = None
    try:
        async with answer_within(timeout_seconds):
            client = await connect(servers, client_id=f"{client_id}-ids")
            await consumer.start()
            # Lets the driver's task begin: `stop` takes the end of a task that has not begun for its own cancellation.
            await asyncio.sleep(0)
        yield consumer, client
    finally:
        await stop(consumer)
        if client is not None:
            await close(client)
