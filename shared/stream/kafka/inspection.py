"""The questions of `carillon doctor` to Kafka. They create no topic and write no record."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import collect_hosts
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import TopicPartition
from msgspec import Struct

from shared.domain.errors import Unavailable
from shared.stream.kafka.connections import stop, translate_errors
from shared.stream.kafka.durability import describe_broker, describe_topics

# EndTxn version 5 came with Kafka 4.0 (KIP-890): brokers from there on show a marker as soon as its lane is fenced.
_END_TXN, _SINCE_4_0 = 26, 5


def kafka_addresses(url: str) -> list[tuple[str, int]]:
    """The hosts and ports in a URL of Kafka."""
    servers = collect_hosts(urlsplit(url).netloc.rpartition("@")[2], randomize=False)
    return [(host, port) for host, port, _ in servers]


def is_older_than_4_0(versions: Any) -> bool:
    """Whether a broker with this answer to `ApiVersions` may show a marker late."""
    newest = {key: highest for key, _, highest in versions.api_versions}
    return bool(newest.get(_END_TXN, 0) < _SINCE_4_0)


async def try_transaction(
    options: Mapping[str, Any], request_seconds: float, ledger_topic: str, timeout_seconds: float
) -> None:
    """Begin a transaction with an offset of the ledger, and abort it. A missing ledger is waited for."""
    producer = AIOKafkaProducer(
        **options,
        transactional_id=f"carillon-doctor-{secrets.token_hex(12)}",  # two doctors with one id would fence each other
        transaction_timeout_ms=int(timeout_seconds * 1000),
        request_timeout_ms=int(request_seconds * 1000),
    )
    try:
        with translate_errors():
            async with asyncio.timeout(request_seconds):
                await producer.start()
                await producer.begin_transaction()
                await producer.send_offsets_to_transaction({TopicPartition(ledger_topic, 0): 0}, "carillon.job.doctor")
                await producer.abort_transaction()
    finally:
        await stop(producer)


class TopicFacts(Struct, frozen=True):
    """A topic: `copies` is the smallest number of a partition, `leaderless` counts partitions without a leader,
    `settings` are those that Carillon may see."""

    name: str
    partitions: int
    copies: int = 1
    leaderless: int = 0
    settings: Mapping[str, str | None] = {}


class KafkaInspection:
    """Questions of the doctor to a cluster."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[AIOKafkaClient]],
        read_versions: Callable[[], Awaitable[Mapping[int, Any]]],
        timeout_seconds: float,
    ) -> None:
        self._connect = connect
        self._read_versions = read_versions
        self._timeout_seconds = timeout_seconds

    async def find_brokers(self) -> dict[int, bool]:
        """Ask each broker at its advertised address whether it is older than 4.0."""
        return {node: is_older_than_4_0(reply) for node, reply in sorted((await self._read_versions()).items())}

    async def read_topics(self, pattern: str, settings: Sequence[str]) -> dict[str, TopicFacts]:
        async with self._ask() as client:
            node = client.get_random_node()
            if node is None:
                raise Unavailable("Kafka: no broker is known")
            reply = await client.send(node, MetadataRequest(None, allow_auto_topic_creation=False))
            present = {name: parts for _, name, _, parts in reply.topics if parts and re.fullmatch(pattern, name)}
            found = await describe_topics(client, node, present, settings) if settings else {}
        return {
            name: TopicFacts(
                name,
                partitions=len(parts),
                copies=min(len(part[3]) for part in parts),
                leaderless=sum(part[2] < 0 for part in parts),
                settings=found.get(name, {}),
            )
            for name, parts in present.items()
        }

    async def read_brokers(self, settings: Sequence[str]) -> dict[int, Mapping[str, str | None]]:
        async with self._ask() as client:
            nodes = [broker.nodeId for broker in client.cluster.brokers()]
            return {node: await describe_broker(client, node, settings) for node in nodes}

    @asynccontextmanager
    async def _ask(self) -> AsyncIterator[AIOKafkaClient]:
        client = await self._connect()
        with translate_errors():
            async with asyncio.timeout(self._timeout_seconds):
                yield client
