"""Topics and versions of the cluster: `carillon init` creates the topics, every process verifies them."""

import asyncio
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, TopicAlreadyExistsError, for_code
from aiokafka.protocol.admin import ApiVersionRequest

from shared.domain.errors import Unavailable
from shared.stream import TopicSpec
from shared.stream.kafka import durability
from shared.stream.kafka.connections import STOP_SECONDS, translate_errors
from shared.stream.kafka.inspection import KafkaInspection, is_older_than_4_0
from shared.stream.kafka.servers import KafkaServers


class Closable(Protocol):
    """A client of the driver whose `close` may hang."""

    def close(self) -> Awaitable[None]: ...


async def connect(servers: KafkaServers, *, client_id: str) -> AIOKafkaClient:
    """Connect a client that knows the cluster. The caller sets the deadline; a cancelled call leaves nothing open."""
    client = AIOKafkaClient(**servers.options(client_id))
    try:
        await client.bootstrap()
    except KafkaConnectionError as error:
        await close(client)
        fault = await servers.find_fault(client_id)
        raise KafkaConnectionError(fault or error) from error
    except BaseException:
        await close(client)
        raise
    return client


async def close(client: Closable) -> None:
    """Close a client within `STOP_SECONDS`, or give up: a broker may let it hang."""
    with suppress(Exception):
        async with asyncio.timeout(STOP_SECONDS):
            await client.close()


class Cluster:
    """Topics and versions, read over one metadata connection."""

    def __init__(
        self,
        servers: KafkaServers,
        *,
        client_id: str,
        ledger: tuple[str, int],
        push_topics: str,
        replication_factor: int,
        marker_retention_days: float,
        timeout_seconds: float,
    ) -> None:
        self._servers = servers
        self._client_id = client_id
        self._ledger = ledger
        self._push_topics = re.compile(push_topics)
        self._replication_factor = replication_factor
        self._marker_retention_days = marker_retention_days
        self._timeout_seconds = timeout_seconds
        self._client: AIOKafkaClient | None = None
        self._opening = asyncio.Lock()

    @property
    def inspection(self) -> KafkaInspection:
        return KafkaInspection(self._connect, self._versions, self._timeout_seconds)

    async def setup(self, topics: Mapping[str, TopicSpec]) -> None:
        ledger, partitions = self._ledger
        wanted = {ledger: TopicSpec(partitions), **topics}
        present = await self._topics()
        missing = {name: topic for name, topic in wanted.items() if name not in present}
        if missing:
            await self._create(missing)

    async def verify(self, wanted: Mapping[str, TopicSpec]) -> None:
        """Refuse brokers that are older than 4.0 or forget markers too early, and topics that are missing, too small
        or forget too early. Topics that can lose acknowledged records are only logged."""
        versions = await self._versions()
        for node, reply in versions.items():
            if is_older_than_4_0(reply):
                raise Unavailable(f"Kafka: broker {node} is older than 4.0, where a marker may be late")
        ledger, partitions = self._ledger
        topics = await self._topics()
        _check_partitions({ledger: partitions} | {name: topic.partitions for name, topic in wanted.items()}, topics)
        push_topics = [name for name in topics if self._push_topics.fullmatch(name)]
        await self._check_durability(versions, [ledger, *wanted, *durability.INTERNAL_TOPICS, *push_topics], wanted)

    async def ping(self) -> None:
        await self._topics()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await close(client)

    async def _check_durability(
        self, nodes: Iterable[int], topics: Sequence[str], wanted: Mapping[str, TopicSpec]
    ) -> None:
        client = await self._connect()
        with translate_errors():
            async with asyncio.timeout(self._timeout_seconds):
                await durability.check_marker_retention(client, nodes, days=self._marker_retention_days)
                await durability.check_topic_retention(client, wanted)
                await durability.warn_of_lone_leaders(client, topics)

    async def _create(self, topics: Mapping[str, TopicSpec]) -> None:
        admin = AIOKafkaAdminClient(**self._servers.options(f"{self._client_id}-admin"))
        with translate_errors():
            try:
                async with asyncio.timeout(2 * self._timeout_seconds):
                    await admin.start()
                    copies = self._replication_factor
                    reply = await admin.create_topics(
                        [
                            NewTopic(
                                name, topic.partitions, copies, topic_configs=durability.topic_configs(copies, topic)
                            )
                            for name, topic in topics.items()
                        ]
                    )
            finally:
                await close(admin)
            for name, code, *_ in reply.topic_errors:
                error = for_code(code)
                if code and error is not TopicAlreadyExistsError:
                    raise error(name)

    async def _versions(self) -> dict[int, Any]:
        client = await self._connect()
        with translate_errors():
            async with asyncio.timeout(self._timeout_seconds):
                await client.force_metadata_update()
                nodes = [broker.nodeId for broker in client.cluster.brokers()]
                replies = await asyncio.gather(*(client.send(node, ApiVersionRequest()) for node in nodes))
        return dict(zip(nodes, replies, strict=True))

    async def _topics(self) -> dict[str, int]:
        client = await self._connect()
        with translate_errors():
            async with asyncio.timeout(self._timeout_seconds):
                metadata = await client.fetch_all_metadata()
        return {topic: len(metadata.partitions_for_topic(topic) or ()) for topic in metadata.topics()}

    async def _connect(self) -> AIOKafkaClient:
        async with self._opening:
            if self._client is None:
                with translate_errors():
                    async with asyncio.timeout(self._timeout_seconds):
                        self._client = await connect(self._servers, client_id=f"{self._client_id}-cluster")
        return self._client


def _check_partitions(wanted: Mapping[str, int], found: Mapping[str, int]) -> None:
    for name, count in wanted.items():
        if (present := found.get(name, 0)) < count:
            raise Unavailable(f"Kafka: topic {name} has {present} partitions of {count}: run `carillon init`")
