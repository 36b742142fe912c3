"""The ledger: the last marker that each slot of a job committed, kept as consumer offsets of a group per job."""

import asyncio
from typing import Any

import msgspec
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from msgspec import Struct

from shared.core.errors import Unavailable
from shared.drivers.kafka.cluster import close, connect
from shared.drivers.kafka.servers import KafkaServers, answer_within
from shared.jobs.rules.batches import Batch, BatchPart, Receipt
from shared.runtime.faults import fault
from shared.runtime.server_settings import StreamSettings

# The broker's limit is 4,096; one byte more kills the producer.
_METADATA_BYTES = 4_000
_NOTHING_COMMITTED = -1


class Marker(Struct, frozen=True, array_like=True):
    """The marker of a transaction: the batch, the lane that sent it, and the part."""

    batch: str
    lane: str
    receipt: Receipt
    number: int
    next: int | None


_decoder = msgspec.json.Decoder(Marker)


def group_of(job_key: str) -> str:
    """The consumer group that holds a job's markers."""
    return f"carillon.job.{job_key}"


def entry(topic: str, batch: Batch, lane: str, part: BatchPart) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offset to commit in the part's transaction."""
    receipt = part.receipt.limit_entries()
    metadata = msgspec.json.encode(Marker(batch.id, lane, receipt, part.number, part.next))
    if len(metadata) > _METADATA_BYTES:
        bare = msgspec.structs.replace(receipt, reasons={}, locales={})
        metadata = msgspec.json.encode(Marker(batch.id, lane, bare, part.number, part.next))
    return {TopicPartition(topic, batch.slot): OffsetAndMetadata(batch.ordinal, metadata.decode())}


class Ledger:
    """Reads markers over its own connection. An answer is final only for a fenced lane."""

    def __init__(self, servers: KafkaServers, settings: StreamSettings, *, client_id: str) -> None:
        self._servers = servers
        self._client_id = f"{client_id}-ledger"
        self._topic = settings.ledger_topic
        self._timeout_seconds = settings.request_timeout_seconds
        self._client: AIOKafkaClient | None = None
        self._lock = asyncio.Lock()

    async def part(self, batch: Batch) -> BatchPart | None:
        """The part that the batch's owner committed since its last take, or `None`. Any doubt raises `Unavailable`."""
        async with self._lock:
            try:
                async with answer_within(self._timeout_seconds):
                    await fault("stream.marker_read")
                    offset, marker = await self._read(batch)
            except BaseException:
                await self.close()
                raise
        if offset > batch.ordinal:
            # The chain went on before this batch was settled: do not conclude that the batch did not go out.
            raise Unavailable(f"the marker of slot {batch.slot} is beyond batch {batch.id}")
        if marker is None or (marker.batch, marker.lane, marker.number) != (batch.id, batch.owner, batch.parts + 1):
            return None
        return BatchPart(marker.receipt, marker.number, marker.next)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await close(client)

    async def _read(self, batch: Batch) -> tuple[int, Marker | None]:
        if self._client is None:
            self._client = await connect(self._servers, client_id=self._client_id)
        group = group_of(batch.job_id)
        coordinator = await self._client.coordinator_lookup(CoordinationType.GROUP, group)
        await self._client.ready(coordinator)
        reply = await self._client.send(coordinator, OffsetFetchRequest(group, [(self._topic, [batch.slot])]))
        return _marker(reply, self._topic, batch.slot)


def _marker(reply: Any, topic: str, partition: int) -> tuple[int, Marker | None]:
    """Find the marker. Only a reply without an error that contains the partition may say that there is none."""
    _raise_for(reply.error_code)
    for name, partitions in reply.topics:
        for number, offset, metadata, code in partitions:
            if (name, number) == (topic, partition):
                _raise_for(code)
                return offset, None if offset == _NOTHING_COMMITTED else _decoder.decode(metadata)
    raise Unavailable("Kafka: the reply leaves out the marker's partition")


def _raise_for(code: int) -> None:
    if code:
        raise for_code(code)
