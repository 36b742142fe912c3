"""The questions of `carillon doctor` to Kafka. No topic is made, and no record is written.

The transaction that is tried has a consumer group in it and no offsets, and is aborted. It leaves what every
transaction leaves: an id that the coordinator forgets after `transactional.id.expiration.ms`, and an abort's marker in
`__consumer_offsets`, which the broker cleans away. (A cluster that never had a transaction makes `__transaction_state`
when it is asked for the first time.)
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import ConcurrentTransactions, KafkaError, for_code
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.transaction import AddOffsetsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from msgspec import Struct

from shared.domain.errors import Unavailable
from shared.stream.kafka.connections import translate_errors
from shared.stream.kafka.durability import describe_broker, describe_topics
from shared.stream.kafka.topic_ids import topic_ids

# EndTxn version 5 came with Kafka 4.0 (KIP-890): brokers from there on show a marker as soon as its lane is fenced.
_END_TXN, _SINCE_4_0 = 26, 5
_AGAIN_SECONDS = 0.1
_MEMBERS = 5  # their place in what is told of a group
_FENCED = frozenset({47, 90})  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED

TRANSACTIONAL_ID = "carillon-doctor"
GROUP = "carillon.job.doctor"


def is_older_than_4_0(versions: Any) -> bool:
    """Whether a broker that answers so to `ApiVersions` may show a marker late."""
    newest = {key: highest for key, _, highest in versions.api_versions}
    return bool(newest.get(_END_TXN, 0) < _SINCE_4_0)


class _Fenced(Exception):
    """Another doctor has begun a transaction since."""


class BrokerVersions(Struct, frozen=True):
    """The brokers of the cluster, and those among them that are too old."""

    nodes: Sequence[int]
    old: Sequence[int]


class TopicFacts(Struct, frozen=True):
    """A topic: its partitions, the least of their copies, how many have no leader, and what is set of it."""

    name: str
    partitions: int
    copies: int
    leaderless: int
    settings: Mapping[str, str | None]


class KafkaInspection:
    """Questions to a cluster. All raise `Unavailable`."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[AIOKafkaClient]],
        read_versions: Callable[[], Awaitable[Mapping[int, Any]]],
        timeout_seconds: float,
    ) -> None:
        self._connect = connect
        self._read_versions = read_versions
        self._timeout_seconds = timeout_seconds

    async def read_versions(self) -> BrokerVersions:
        """Ask every broker, at the address that the cluster tells of it."""
        versions = await self._read_versions()
        old = [node for node, reply in versions.items() if is_older_than_4_0(reply)]
        return BrokerVersions(sorted(versions), old)

    async def find_topics(self, pattern: str) -> list[str]:
        """The topics whose whole name matches."""
        async with self._ask() as client:
            known = (await client.fetch_all_metadata()).topics()
        return sorted(name for name in known if re.fullmatch(pattern, name))

    async def read_topics(self, names: Iterable[str], settings: Sequence[str]) -> dict[str, TopicFacts]:
        """Those of these topics that there are. Settings that we may not see are left out."""
        wanted = list(names)
        async with self._ask() as client:
            node = _any_node(client)
            reply = await client.send(node, MetadataRequest(wanted, allow_auto_topic_creation=False))
            present = {name: parts for _, name, _, parts in reply.topics if parts}
            found = await describe_topics(client, node, present, settings)
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
        """These settings of every broker."""
        async with self._ask() as client:
            nodes = [broker.nodeId for broker in client.cluster.brokers()]
            return {node: await describe_broker(client, node, settings) for node in nodes}

    async def read_topic_id(self, name: str) -> str:
        """The id that the cluster gave a topic when it was made; empty where there is none."""
        async with self._ask() as client:
            return (await topic_ids(client, [name])).get(name, "")

    async def count_members(self, group: str) -> int:
        """How many are in a consumer group now."""
        async with self._ask() as client:
            while True:
                node = await _find_coordinator(client, CoordinationType.GROUP, group)
                described = (await client.send(node, DescribeGroupsRequest([group]))).groups[0]
                if not described[0]:
                    return len(described[_MEMBERS])
                error = for_code(described[0])
                if not error.retriable:
                    raise error(group)
                await asyncio.sleep(_AGAIN_SECONDS)  # a broker that has just begun has not loaded its groups yet

    async def try_transaction(self, *, timeout_seconds: float) -> None:
        """Begin a transaction with a consumer group in it, and abort it; again where another doctor's fenced it."""
        async with self._ask() as client:
            node = await _find_coordinator(client, CoordinationType.TRANSACTION, TRANSACTIONAL_ID)
            while not await _abort_transaction(client, node, timeout_seconds):
                await asyncio.sleep(random.uniform(0, _AGAIN_SECONDS))

    @asynccontextmanager
    async def _ask(self) -> AsyncIterator[AIOKafkaClient]:
        client = await self._connect()
        with translate_errors():
            async with asyncio.timeout(self._timeout_seconds):
                yield client


async def _find_coordinator(client: AIOKafkaClient, kind: CoordinationType, name: str) -> int:
    """The broker that coordinates this transaction or group. Raises the driver's errors."""
    while True:
        try:
            node: int = await client.coordinator_lookup(kind, name)
        except KafkaError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(_AGAIN_SECONDS)
        else:
            await client.ready(node)
            return node


async def _abort_transaction(client: AIOKafkaClient, node: int, timeout_seconds: float) -> bool:
    """Begin a transaction and abort it; whether nobody fenced it meanwhile. Raises the driver's errors."""
    begin = InitProducerIdRequest(TRANSACTIONAL_ID, int(timeout_seconds * 1000))
    try:
        begun = await _send(client, node, begin)
        ours = (TRANSACTIONAL_ID, begun.producer_id, begun.producer_epoch)
        await _send(client, node, AddOffsetsToTxnRequest(*ours, GROUP))
        await _send(client, node, EndTxnRequest(*ours, transaction_result=False))
    except _Fenced:
        return False
    return True


async def _send(client: AIOKafkaClient, node: int, request: Any) -> Any:
    """The answer, once the coordinator is through with what came before. Raises the driver's errors, and `_Fenced`."""
    while True:
        answer = await client.send(node, request)
        error = for_code(answer.error_code)
        if not answer.error_code:
            return answer
        if answer.error_code in _FENCED:
            raise _Fenced
        if not error.retriable and error is not ConcurrentTransactions:
            raise error(type(request).__name__.removesuffix("Request"))
        await asyncio.sleep(_AGAIN_SECONDS)


def _any_node(client: AIOKafkaClient) -> int:
    node: int | None = client.get_random_node()
    if node is None:
        raise Unavailable("Kafka: no broker is known")
    return node
