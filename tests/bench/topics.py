"""Topics, looked at from outside: when records were appended, and whether each device has exactly one.

The topics are made with the broker's own append time, so the clock is neither a producer's nor ours.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import ConsumerRecord, TopicPartition
from msgspec import Struct

from tests.bench.report import Wrong

PARTITIONS = 8
# More than the control records that can stand together at the end: one for each chain of a job.
_TAIL = 200
_TOKEN = b'{"DeviceToken":"'
_NUMBER = slice(len(_TOKEN), len(_TOKEN) + 12)

Ends = Mapping[TopicPartition, int]


class Appended(Struct, frozen=True):
    """When the first and the last of some records were appended, in ms since the epoch."""

    first: int
    last: int

    def rate(self, records: int) -> float:
        """Records a second between the two."""
        return records / max(self.last - self.first, 1) * 1000


@asynccontextmanager
async def _admin(servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


class Topic:
    """One topic of the broker at `servers`."""

    def __init__(self, servers: str, name: str) -> None:
        self.name = name
        self._servers = servers
        self._partitions = [TopicPartition(name, number) for number in range(PARTITIONS)]

    async def create(self) -> None:
        """Make it, with append times."""
        options = {"message.timestamp.type": "LogAppendTime"}
        async with _admin(self._servers) as admin:
            await admin.create_topics([NewTopic(self.name, PARTITIONS, 1, topic_configs=options)])

    async def delete(self) -> None:
        """Give its disk back, within a minute."""
        async with _admin(self._servers) as admin:
            await admin.delete_topics([self.name])

    async def ends(self) -> Ends:
        """Where each partition ends now."""
        async with self._consumer() as consumer:
            return await self._ends(consumer)

    async def appended(self, since: Ends) -> Appended | None:
        """When what lies behind these ends was appended; `None` where there is nothing. Reads only its edges."""
        async with self._consumer() as consumer:
            ends = await self._ends(consumer)
            firsts = [stamp async for stamp in self._firsts(consumer, since, ends)]
            tail = {each: max(since[each], ends[each] - _TAIL) for each in ends}
            lasts = [max(r.timestamp for r in found) async for found in _between(consumer, tail, ends)]
        return Appended(min(firsts), max(lasts)) if firsts else None

    async def check(self, since: Ends, *, devices: int, size: int) -> None:
        """Raise `Wrong` unless each of the devices 1 to `devices` has one committed record, of `size` bytes."""
        found = bytearray(devices + 1)
        async with self._consumer() as consumer:
            async for records in _between(consumer, since, await self._ends(consumer)):
                for record in records:
                    value = record.value
                    if len(value) != size or not value.startswith(_TOKEN):
                        raise Wrong(f"a record of {len(value)} bytes instead of {size}: {value!r}")
                    number = int(value[_NUMBER], 16)
                    found[number] = min(found[number] + 1, 255)
        once, never = found.count(1), found.count(0) - 1
        if once != devices:
            raise Wrong(f"{once:,} of {devices:,} devices have one record, {never:,} none, the rest several")

    async def _firsts(self, consumer: AIOKafkaConsumer, since: Ends, ends: Ends) -> AsyncIterator[int]:
        for partition in self._partitions:
            if since[partition] < ends[partition]:
                consumer.seek(partition, since[partition])
                found = await consumer.getmany(partition, timeout_ms=2000, max_records=1)
                for records in found.values():
                    yield records[0].timestamp

    async def _ends(self, consumer: AIOKafkaConsumer) -> Ends:
        found: Ends = await consumer.end_offsets(self._partitions)
        return found

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=4 * 1024 * 1024,
        )
        await consumer.start()
        try:
            consumer.assign(self._partitions)
            yield consumer
        finally:
            await consumer.stop()


async def _between(consumer: AIOKafkaConsumer, since: Ends, ends: Ends) -> AsyncIterator[list[ConsumerRecord]]:
    """The records between two positions of each partition, some at a time."""
    for partition, position in since.items():
        consumer.seek(partition, position)
    left = [partition for partition in ends if since[partition] < ends[partition]]
    while left:
        for records in (await consumer.getmany(*left, timeout_ms=1000, max_records=20_000)).values():
            yield records
        left = [partition for partition in left if await consumer.position(partition) < ends[partition]]
