"""A group member that reads committed records and starts where somebody else's book says."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.structs import TopicPartition

from shared.stream import Chunk, Positions
from shared.stream.kafka.connections import stopped, translated

_METADATA_SECONDS = 10
_START_SECONDS = 20
_MAX_RECORDS = 20_000


@asynccontextmanager
async def reading(
    servers: str, pattern: str, *, group: str, client_id: str, positions: Positions | None
) -> AsyncIterator["KafkaReader"]:
    """A reader for as long as the block runs. New topics that match show up within `_METADATA_SECONDS`."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        client_id=f"{client_id}-reader",
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        metadata_max_age_ms=_METADATA_SECONDS * 1000,
        fetch_max_bytes=32 * 1024 * 1024,
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )
    consumer.subscribe(pattern=pattern, listener=_Seek(consumer, positions))
    try:
        with translated():
            async with asyncio.timeout(_START_SECONDS):
                await consumer.start()
        yield KafkaReader(consumer)
    finally:
        await stopped(consumer)


class _Seek(ConsumerRebalanceListener):
    """Moves every newly assigned partition to where its reading stands."""

    def __init__(self, consumer: AIOKafkaConsumer, positions: Positions | None) -> None:
        self._consumer = consumer
        self._positions = positions

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Nothing to hand over: positions are kept elsewhere."""

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Seek."""
        names = {_name(partition): partition for partition in assigned}
        stored = await self._positions(list(names)) if self._positions and names else {}
        for name, partition in names.items():
            # Position 0 of a partition whose head is gone resets to the earliest record.
            self._consumer.seek(partition, stored.get(name, 0))


class KafkaReader:
    """See `shared.stream.Reader`."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def read(self, wait_seconds: float) -> list[Chunk]:
        with translated():
            found = await self._consumer.getmany(timeout_ms=int(wait_seconds * 1000), max_records=_MAX_RECORDS)
        return [
            Chunk(_name(partition), records[0].offset, records[-1].offset + 1, [record.value for record in records])
            for partition, records in found.items()
            if records
        ]

    async def rewind(self, partition: str, position: int) -> None:
        with suppress(IllegalStateError):
            self._consumer.seek(_partition(partition), position)

    async def report(self, positions: Mapping[str, int]) -> None:
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(_METADATA_SECONDS):
                await self._consumer.commit({_partition(name): offset for name, offset in positions.items()})


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}/{partition.partition}"


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("/")
    return TopicPartition(topic, int(number))
