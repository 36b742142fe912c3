"""Plain, idempotent publishing outside of any transaction."""

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer

from shared.domain.errors import Unavailable
from shared.stream.kafka.connections import stop, translate_errors
from shared.stream.kafka.produce import Framing, append, wait_for_all
from shared.stream.kafka.servers import KafkaServers


class Publisher:
    """One idempotent producer, opened at the first use and again after a failure."""

    def __init__(self, servers: KafkaServers, *, client_id: str, timeout_seconds: float, compression: str) -> None:
        self._options = {
            **servers.options(f"{client_id}-publish"),
            "enable_idempotence": True,
            "request_timeout_ms": int(timeout_seconds * 1000),
        }
        self._framing = Framing(256 * 1024, compression, transactional=False)
        self._timeout_seconds = timeout_seconds
        self._producer: AIOKafkaProducer | None = None
        self._lock = asyncio.Lock()

    async def publish(self, topic: str, values: Sequence[bytes]) -> None:
        """Append the values and return when all in-sync replicas have them. Raises `Unavailable`."""
        async with self._lock:
            try:
                with translate_errors():
                    async with asyncio.timeout(2 * self._timeout_seconds):
                        producer = await self._start()
                        pending = await append(producer, topic, values, self._framing)
                        failures = await wait_for_all(pending)
                if failures:
                    raise Unavailable(f"Kafka: {failures[0]!r}")
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        """End the producer; the next publish opens another."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop(producer)

    async def _start(self) -> AIOKafkaProducer:
        if self._producer is None:
            self._producer = AIOKafkaProducer(**self._options)
            await self._producer.start()
        return self._producer
