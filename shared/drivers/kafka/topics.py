"""Topics of the cluster: their ids, the names of their partitions, and whether one takes records.

The cluster gives a topic its id when it is created; the id tells the log apart from another topic of the same name.
A producer that sends to a missing topic waits long, so a topic is looked up before.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Any, ClassVar
from uuid import UUID

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import LeaderNotAvailableError, NoError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)
from aiokafka.structs import TopicPartition

from shared.clock.rules.callbacks import Undeliverable
from shared.drivers.kafka.cluster import any_node, close, connect
from shared.drivers.kafka.servers import KafkaServers


def name_of(partition: TopicPartition) -> str:
    return f"{partition.topic}/{partition.partition}"


def partition_of(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("/")
    return TopicPartition(topic, int(number))


_NO_ID = UUID(int=0)
_TEXT = CompactString("utf-8")


class _Uuid(AbstractType[UUID]):
    @classmethod
    def encode(cls, value: UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: Any) -> UUID:
        return UUID(bytes=data.read(16))


class _TopicIdsResponse(Response):
    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT), ("tags", TaggedFields)),
        ),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", _TEXT),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _TopicIdsRequestStruct(RequestStruct):
    API_KEY = 3
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _TopicIdsResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("name", _TEXT), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _TopicIdsRequest(Request[_TopicIdsRequestStruct]):
    API_KEY: ClassVar[int] = 3

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics: list[tuple[UUID, str, dict[int, bytes]]] = [(_NO_ID, topic, {}) for topic in topics]

    def build(self, request_struct_class: type[_TopicIdsRequestStruct]) -> _TopicIdsRequestStruct:
        return request_struct_class(self._topics, False, False, {})


async def topic_ids(client: AIOKafkaClient, topics: Iterable[str]) -> dict[str, str]:
    """The ids of the existing topics among these. The caller sets the deadline; raises the driver's errors."""
    reply = await client.send(any_node(client), _TopicIdsRequest(topics))
    return {topic[1]: str(topic[2]) for topic in reply.topics if topic[2] != _NO_ID}


_KNOWN_SECONDS = 30.0
_KNOWN = 1_000


class Topics:
    """The known topics, for 30 seconds; a missing topic is asked for each time."""

    def __init__(self, servers: KafkaServers, *, client_id: str) -> None:
        self._servers = servers
        self._client_id = f"{client_id}-topics"
        self._known: dict[str, float] = {}
        self._client: AIOKafkaClient | None = None
        self._lock = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def find_refused(self, names: Iterable[str]) -> dict[str, Undeliverable]:
        """The topics that are missing or closed to Carillon, and why. The caller sets the deadline; raises the driver's
        errors."""
        now = time.monotonic()
        asked = [name for name in names if self._known.get(name, 0.0) < now]
        if not asked:
            return {}
        async with self._lock:
            try:
                return await self._ask(asked)
            except BaseException:
                self._abandon()
                raise

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._known.pop(name, None)

    async def close(self) -> None:
        self._abandon()
        await asyncio.gather(*self._closing)

    def _abandon(self) -> None:
        """Close the connection without waiting: the caller may have no time left."""
        client, self._client = self._client, None
        if client is not None:
            task = asyncio.create_task(close(client))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _ask(self, names: list[str]) -> dict[str, Undeliverable]:
        if self._client is None:
            self._client = await connect(self._servers, client_id=self._client_id)
        reply = await self._client.send(any_node(self._client), MetadataRequest(names, allow_auto_topic_creation=False))
        verdicts = {topic[1]: _verdict(topic[1], topic[0]) for topic in reply.topics}
        self._remember(name for name in names if verdicts.get(name) is None)
        return {name: verdict for name, verdict in verdicts.items() if verdict is not None}

    def _remember(self, names: Iterable[str]) -> None:
        if len(self._known) > _KNOWN:
            self._known.clear()
        self._known |= dict.fromkeys(names, time.monotonic() + _KNOWN_SECONDS)


def _verdict(name: str, code: int) -> Undeliverable | None:
    error = for_code(code)
    if error in (NoError, LeaderNotAvailableError):
        return None
    if error is UnknownTopicOrPartitionError:
        return Undeliverable(f"there is no topic {name}")
    if error.retriable:
        raise error(name)
    return Undeliverable(f"topic {name}: {error.__name__}")
