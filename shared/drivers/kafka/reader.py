"""Readers of committed records: a group member that starts at positions kept outside of Kafka, and a reader of ranges
without a group.

A rebalance hands out partitions at any time, and the driver begins to fetch them at once, from a position of its own
choice. So a partition is **seated** first: `read` looks up its position and seeks it, so that a failure reaches the
caller and is tried again. Records of a partition without a seat in the present assignment are dropped and read again.

A seat, or a range, belongs to one log, known by its topic's id. The driver reads by the topic's name and would go on at
the old offset in a topic that was created anew. So the readers ask for the ids after each fetch. Records of another log
are dropped: a partition loses its seat, and the next seat begins at the new log's position; a range is over.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

from shared.core.documents import LogRange
from shared.core.errors import Unavailable
from shared.core.instants import ms
from shared.drivers.kafka.cluster import close, connect
from shared.drivers.kafka.reading import Chunk, Positions
from shared.drivers.kafka.servers import KafkaServers, answer_within, stop, translate_errors
from shared.drivers.kafka.topics import name_of, partition_of, topic_ids

_METADATA_SECONDS = 10
_START_SECONDS = 20
_REPORT_SECONDS = 3
_REBALANCE_SECONDS = 1.0
_IDS_SECONDS = 5.0
_MAX_RECORDS = 20_000
_FETCH_SECONDS = 5.0
_RANGE_RECORDS = 2_000


def _consumer(servers: KafkaServers, client_id: str, **options: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        **servers.options(client_id),
        isolation_level="read_committed",
        enable_auto_commit=False,
        # If the record at a position is gone, reading begins at the earliest that exists.
        auto_offset_reset="earliest",
        **options,
    )


@asynccontextmanager
async def _start(
    consumer: AIOKafkaConsumer, servers: KafkaServers, client_id: str, seconds: float
) -> AsyncIterator[AIOKafkaClient]:
    """Start the consumer, and a connection for the ids: fetches that wait for records block the driver's own."""
    client: AIOKafkaClient | None = None
    try:
        async with answer_within(seconds):
            client = await connect(servers, client_id=f"{client_id}-ids")
            await consumer.start()
            # Lets the driver's task begin: `stop` takes the end of a task that has not begun for its own cancellation.
            await asyncio.sleep(0)
        yield client
    finally:
        await stop(consumer)
        if client is not None:
            await close(client)


@asynccontextmanager
async def open_reader(
    servers: KafkaServers, pattern: str, *, group: str, client_id: str, positions: Positions | None
) -> AsyncIterator["KafkaReader"]:
    """A reader for the block. A new topic that matches shows up within `_METADATA_SECONDS`."""
    consumer = _consumer(
        servers,
        f"{client_id}-reader",
        group_id=group,
        metadata_max_age_ms=_METADATA_SECONDS * 1000,
        fetch_max_bytes=32 * 2**20,
        max_partition_fetch_bytes=4 * 2**20,
    )
    seats = _Seats()
    # The driver matches only the beginning of a topic's name.
    consumer.subscribe(pattern=rf"(?:{pattern})\Z", listener=seats)
    async with _start(consumer, servers, f"{client_id}-reader", _START_SECONDS) as client:
        yield KafkaReader(consumer, client, seats, positions)


class _Seats(ConsumerRebalanceListener):
    """The assigned partitions whose position was sought, with the ids of their logs.

    `open` is true from the end of a rebalance to the beginning of the next. In between, the driver seeks in the old
    assignment and returns records of the new one.
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
        # When a rebalance begins, the driver forgets its partitions before this class does.
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
        # During a rebalance the driver ignores its own time-out.
        with translate_errors(), suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds + _REBALANCE_SECONDS):
                found: Mapping[TopicPartition, list[ConsumerRecord]] = await self._consumer.getmany(
                    timeout_ms=int(wait_seconds * 1000), max_records=_MAX_RECORDS
                )
                return found
        return {}

    async def _seat(self) -> None:
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
        """Take the seats of partitions whose log has changed since their position was asked for."""
        seated = {partition: self._seats.taken.pop(partition) for partition in found if partition in self._seats.taken}
        if not seated:
            return
        rebalances = self._seats.rebalances
        # Without an answer they stay without a seat: the fetched records are dropped and read again.
        logs = await self._logs(seated)
        if rebalances == self._seats.rebalances:
            self._seats.taken |= {partition: log for partition, log in seated.items() if logs.get(partition) == log}

    async def _logs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """The id of each partition's log. Partitions of deleted topics are missing."""
        topics = {partition.topic for partition in partitions}
        async with answer_within(_IDS_SECONDS):
            ids = await topic_ids(self._client, topics)
        return {partition: ids[partition.topic] for partition in partitions if partition.topic in ids}

    def _seek(self, partition: TopicPartition, position: int) -> bool:
        """Seek; false if the partition is no longer assigned, or the driver is between two assignments."""
        try:
            self._consumer.seek(partition, position)
        except (IllegalStateError, AssertionError):
            return False
        return True


async def find_ranges(
    servers: KafkaServers,
    topic: str,
    *,
    since: datetime | None,
    until: datetime | None,
    client_id: str,
    timeout_seconds: float,
) -> Mapping[str, LogRange]:
    async with (
        _open_ranges(servers, f"{client_id}-ranges", timeout_seconds) as (consumer, client),
        answer_within(timeout_seconds),
    ):
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
async def _open_ranges(
    servers: KafkaServers, client_id: str, timeout_seconds: float
) -> AsyncIterator[tuple[AIOKafkaConsumer, AIOKafkaClient]]:
    consumer = _consumer(servers, client_id, fetch_max_bytes=8 * 2**20, max_partition_fetch_bytes=2**20)
    async with _start(consumer, servers, client_id, timeout_seconds) as client:
        yield consumer, client


@asynccontextmanager
async def open_ranges(
    servers: KafkaServers, ranges: Mapping[str, LogRange], *, client_id: str, timeout_seconds: float
) -> AsyncIterator["KafkaRangeReader"]:
    async with _open_ranges(servers, f"{client_id}-replay", timeout_seconds) as (consumer, client):
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
            found = await self._consumer.getmany(timeout_ms=int(wait_seconds * 1000), max_records=_RANGE_RECORDS)
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
