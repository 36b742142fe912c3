"""A group member that reads committed records and starts at positions that somebody else keeps.

A rebalance hands out partitions at any time, and the driver begins to fetch them at once, from a place of its own
choice. So a partition is **seated** first: its position is looked up and sought by `read` itself, where a failure
reaches the caller and is tried again. Records of a partition without a seat in the present assignment are dropped; they
are read again.

A seat belongs to one log, known by its topic's id. The driver reads by the topic's name and would go on at its offset
in a topic that was made anew. So the ids are asked again after each fetch, and what came from another log is dropped:
its partition loses the seat, and the next seat begins where the new log's position says.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

from shared.stream.kafka.cluster import close, connect
from shared.stream.kafka.connections import stop, translate_errors
from shared.stream.kafka.partition_names import name_of, partition_of
from shared.stream.kafka.servers import KafkaServers
from shared.stream.kafka.topic_ids import topic_ids
from shared.stream.reading import Chunk, Positions

_METADATA_SECONDS = 10
_START_SECONDS = 20
_REPORT_SECONDS = 3
_REBALANCE_SECONDS = 1.0
_IDS_SECONDS = 5.0
_MAX_RECORDS = 20_000


@asynccontextmanager
async def open_reader(
    servers: KafkaServers, pattern: str, *, group: str, client_id: str, positions: Positions | None
) -> AsyncIterator["KafkaReader"]:
    """A reader for as long as the block runs. New topics that match show up within `_METADATA_SECONDS`."""
    consumer = AIOKafkaConsumer(
        **servers.options(f"{client_id}-reader"),
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        # A position whose records are gone goes on at the earliest that is there.
        auto_offset_reset="earliest",
        metadata_max_age_ms=_METADATA_SECONDS * 1000,
        fetch_max_bytes=32 * 1024 * 1024,
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )
    seats = _Seats()
    # The driver is content with a topic whose beginning matches.
    consumer.subscribe(pattern=rf"(?:{pattern})\Z", listener=seats)
    # The driver's own connections are taken by fetches that wait for records.
    client: AIOKafkaClient | None = None
    try:
        with translate_errors():
            async with asyncio.timeout(_START_SECONDS):
                client = await connect(servers, client_id=f"{client_id}-reader-ids")
                await consumer.start()
        yield KafkaReader(consumer, client, seats, positions)
    finally:
        await stop(consumer)
        if client is not None:
            await close(client)


class _Seats(ConsumerRebalanceListener):
    """The partitions of the present assignment whose position was sought, with the ids of their logs.

    `open` only from the end of a rebalance to the next one's beginning. In between the driver takes seeks for the old
    assignment and gives records of the new one.
    """

    def __init__(self) -> None:
        self.taken: dict[TopicPartition, str] = {}
        self.open = False
        self.rebalances = 0

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._clear()

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._clear()
        self.open = True

    def _clear(self) -> None:
        self.taken.clear()
        self.open = False
        self.rebalances += 1


class KafkaReader:
    """See `shared.stream.Reader`."""

    def __init__(
        self, consumer: AIOKafkaConsumer, client: AIOKafkaClient, seats: _Seats, positions: Positions | None
    ) -> None:
        self._consumer = consumer
        self._client = client
        self._seats = seats
        self._positions = positions

    async def read(self, wait_seconds: float) -> list[Chunk]:
        await self._seat()
        found = await self._fetch(wait_seconds)
        await self._leave_other_logs(found)
        return [
            Chunk(
                name_of(partition),
                [record.offset for record in records],
                records[-1].offset + 1,
                [record.value for record in records],
            )
            for partition, records in found.items()
            if records and partition in self._seats.taken
        ]

    def ends(self) -> Mapping[str, int]:
        # While a rebalance begins, the driver has forgotten its partitions and we have not.
        with suppress(AssertionError):
            heard = {partition: self._consumer.last_stable_offset(partition) for partition in self._seats.taken}
            return {name_of(partition): end for partition, end in heard.items() if end is not None and end >= 0}
        return {}

    async def rewind(self, partition: str, position: int) -> None:
        self._seek(partition_of(partition), position)

    async def report(self, positions: Mapping[str, int]) -> None:
        offsets = {partition_of(name): offset for name, offset in positions.items()}
        mine = {partition: offset for partition, offset in offsets.items() if partition in self._seats.taken}
        with suppress(KafkaError, TimeoutError, AssertionError):
            async with asyncio.timeout(_REPORT_SECONDS):
                if mine:
                    await self._consumer.commit(mine)

    async def _fetch(self, wait_seconds: float) -> Mapping[TopicPartition, list[ConsumerRecord]]:
        # During a rebalance the driver waits without regard to its own time-out.
        with translate_errors(), suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds + _REBALANCE_SECONDS):
                found: Mapping[TopicPartition, list[ConsumerRecord]] = await self._consumer.getmany(
                    timeout_ms=int(wait_seconds * 1000), max_records=_MAX_RECORDS
                )
                return found
        return {}

    async def _seat(self) -> None:
        """Seek every assigned partition that has not been sought since the last rebalance."""
        if not self._seats.open:
            return
        rebalances = self._seats.rebalances
        standing = [partition for partition in self._consumer.assignment() if partition not in self._seats.taken]
        if not standing:
            return
        logs = await self._logs(standing)
        stored = await self._positions({name_of(key): log for key, log in logs.items()}) if self._positions else {}
        if rebalances != self._seats.rebalances:
            return  # the next read sees the new assignment
        self._seats.taken |= {
            partition: log
            for partition, log in logs.items()
            if self._seek(partition, stored.get(name_of(partition), 0))
        }

    async def _leave_other_logs(self, found: Iterable[TopicPartition]) -> None:
        """Take the seats of those whose log is no longer the one that their position was asked for."""
        seated = {partition: self._seats.taken.pop(partition) for partition in found if partition in self._seats.taken}
        if not seated:
            return
        rebalances = self._seats.rebalances
        # Without an answer they stay without a seat: what was fetched is dropped, and read again.
        logs = await self._logs(seated)
        if rebalances == self._seats.rebalances:
            self._seats.taken |= {partition: log for partition, log in seated.items() if logs.get(partition) == log}

    async def _logs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """The ids of the logs of these partitions; those of a topic that is gone are missing."""
        topics = {partition.topic for partition in partitions}
        with translate_errors():
            async with asyncio.timeout(_IDS_SECONDS):
                ids = await topic_ids(self._client, topics)
        return {partition: ids[partition.topic] for partition in partitions if partition.topic in ids}

    def _seek(self, partition: TopicPartition, position: int) -> bool:
        """`False` when the partition is no longer ours, or the driver is between two assignments."""
        try:
            self._consumer.seek(partition, position)
        except (IllegalStateError, AssertionError):
            return False
        return True
