"""Idempotent publishing outside of any transaction."""

import asyncio
from collections.abc import Sequence

from shared.domain.errors import Unavailable
from shared.stream import LateRecords, check_keys
from shared.stream.kafka.connections import translate_errors
from shared.stream.kafka.keyed import KeyedAppends
from shared.stream.kafka.partition_lines import BATCH_BYTES
from shared.stream.kafka.produce import Framing, append, wait_for_all
from shared.stream.kafka.producers import Producers
from shared.stream.kafka.servers import KafkaServers


class Publisher:
    """An idempotent producer for all calls, opened at the first use and again after a failure.

    It has one request per partition on its way and numbers its records. So a record that it sends again keeps its
    place: none comes twice or overtakes another.
    """

    def __init__(
        self, servers: KafkaServers, *, client_id: str, timeout_seconds: float, compression: str, max_record_bytes: int
    ) -> None:
        options = {
            **servers.options(f"{client_id}-publish"),
            "enable_idempotence": True,
            "request_timeout_ms": int(timeout_seconds * 1000),
            "compression_type": None if compression == "none" else compression,
            "max_batch_size": BATCH_BYTES,
            "max_request_size": max(max_record_bytes, 2 * BATCH_BYTES),
        }
        self._producers = Producers(options)
        self._keyed = KeyedAppends(self._producers, timeout_seconds=timeout_seconds)
        self._framing = Framing(BATCH_BYTES, compression, transactional=False)
        self._timeout_seconds = timeout_seconds

    async def publish(self, topic: str, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        if keys is None:
            await self._append_anywhere(topic, values)
            return
        seconds = 2 * self._timeout_seconds
        late = await self.append(topic, values, keys, patience_seconds=seconds, seconds=seconds)
        await asyncio.gather(*(records.done for records in late))

    async def append(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes], *, patience_seconds: float, seconds: float
    ) -> Sequence[LateRecords]:
        check_keys(values, keys)
        records = list(zip(keys, values, strict=True))
        return await self._keyed.append(topic, records, patience_seconds=patience_seconds, seconds=seconds)

    async def close(self) -> None:
        """End the producer; the next publish opens another."""
        await self._producers.close()

    async def _append_anywhere(self, topic: str, values: Sequence[bytes]) -> None:
        with translate_errors():
            async with asyncio.timeout(2 * self._timeout_seconds), self._producers.borrow() as shared:
                pending = await append(shared.producer, topic, values, self._framing)
                if failures := await wait_for_all(pending):
                    raise Unavailable(f"Kafka: {failures[0]!r}")
