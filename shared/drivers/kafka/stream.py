"""Exactly once on Apache Kafka: each part of a batch is one transaction that holds its records and its marker.

The marker is a consumer offset: group `carillon.job.<key of the job>`, ledger partition = the batch's slot, offset =
its ordinal, metadata = the part with the sums of all parts so far. Records and marker become visible together, or not
at all, so the marker says what became of the records.

`recover` first fences the batch's owner: it starts a producer with the owner's transactional id, which aborts the open
transaction and makes every later commit of the owner fail. Only then it reads the marker. Before fencing, a marker may
be late (6 of 40 reads right after a commit); after fencing it never was, on Kafka 4.0 and later. `verify` checks the
version, how long the brokers keep markers, and which topics can lose them (`cluster.py`).

A lane is abandoned unless its transaction ended in a confirmed commit or abort: a commit that was given up after two
seconds still happened later. Its id is never used again, because a producer that starts with it after the fencing
would be the newest one.

Every wait has a deadline: if a broker is frozen, the driver's futures and its `stop()` hang far beyond their own
time-outs.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from shared.clock.rules.callbacks import DeliveryError, TopicMessage
from shared.core.documents import LogRange
from shared.core.errors import Unavailable
from shared.drivers.kafka import NO_TOPICS, Lane, LateRecords, TopicSpec, as_spec
from shared.drivers.kafka.cluster import Cluster
from shared.drivers.kafka.deliveries import TopicDeliverer
from shared.drivers.kafka.lanes import Lanes
from shared.drivers.kafka.ledger import Ledger
from shared.drivers.kafka.publisher import Publisher
from shared.drivers.kafka.reader import find_ranges, open_ranges, open_reader
from shared.drivers.kafka.reading import Positions, RangeReader, Reader
from shared.drivers.kafka.servers import KafkaServers
from shared.jobs.rules.batches import Batch, BatchPart
from shared.runtime.server_settings import StreamSettings

_DEFAULTS = StreamSettings()


class KafkaStream:
    """The stream on an Apache Kafka cluster. It connects at the first use."""

    delivers = True

    def __init__(
        self,
        servers: KafkaServers,
        settings: StreamSettings = _DEFAULTS,
        *,
        client_id: str = "carillon",
        lanes: int = 4,
        push_topics: str = "",
        deliver_timeout_seconds: float | None = None,
    ) -> None:
        self._servers = servers
        self._client_id = client_id
        self._request_timeout_seconds = settings.request_timeout_seconds
        self._cluster = Cluster(servers, settings, client_id=client_id, push_topics=push_topics)
        self._ledger = Ledger(servers, settings, client_id=client_id)
        self._lanes = Lanes(servers, settings, client_id=client_id, count=lanes)
        self._publisher = Publisher(servers, settings, client_id=client_id)
        seconds = deliver_timeout_seconds or settings.request_timeout_seconds
        self._deliverer = TopicDeliverer(servers, settings, client_id=client_id, timeout_seconds=seconds)

    @property
    def inspection(self) -> Cluster:
        """Answers the questions of the doctor."""
        return self._cluster

    async def setup(self, topics: Mapping[str, int | TopicSpec]) -> None:
        await self._cluster.setup({name: as_spec(topic) for name, topic in topics.items()})

    async def verify(self, topics: Mapping[str, TopicSpec] = NO_TOPICS) -> None:
        await self._cluster.verify(topics)

    def lane(self) -> AbstractAsyncContextManager[Lane]:
        return self._lanes.borrow()

    async def recover(self, batch: Batch) -> BatchPart | None:
        self._lanes.discard(batch.owner)
        await self._lanes.fence(batch.owner)
        return await self._ledger.part(batch)

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        await self._publisher.publish(topic, values, keys)

    async def append(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes], *, patience_seconds: float, seconds: float
    ) -> Sequence[LateRecords]:
        return await self._publisher.append(topic, values, keys, patience_seconds=patience_seconds, seconds=seconds)

    async def deliver(self, messages: Sequence[TopicMessage]) -> list[DeliveryError | None]:
        return await self._deliverer.deliver(messages)

    def reader(
        self, pattern: str, *, group: str, positions: Positions | None = None
    ) -> AbstractAsyncContextManager[Reader]:
        return open_reader(self._servers, pattern, group=group, client_id=self._client_id, positions=positions)

    async def spans(self, topic: str) -> Mapping[str, tuple[int, int]]:
        return {name: (range.begins, range.ends) for name, range in (await self._find_ranges(topic)).items()}

    async def find_ranges(
        self, topic: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Mapping[str, LogRange]:
        found = await self._find_ranges(topic, since, until)
        if not found or not all(range.log for range in found.values()):
            raise Unavailable(f"Kafka: a broker does not know the topic {topic}")
        return found

    async def _find_ranges(
        self, topic: str, since: datetime | None = None, until: datetime | None = None
    ) -> Mapping[str, LogRange]:
        seconds = self._request_timeout_seconds
        return await find_ranges(
            self._servers, topic, since=since, until=until, client_id=self._client_id, timeout_seconds=seconds
        )

    def read_ranges(self, ranges: Mapping[str, LogRange]) -> AbstractAsyncContextManager[RangeReader]:
        seconds = self._request_timeout_seconds
        return open_ranges(self._servers, ranges, client_id=self._client_id, timeout_seconds=seconds)

    async def ping(self) -> None:
        await self._cluster.ping()

    async def close(self) -> None:
        await self._lanes.close()
        await self._publisher.close()
        await self._deliverer.close()
        await self._ledger.close()
        await self._cluster.close()
