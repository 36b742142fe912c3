"""The id that the cluster gives a topic when it is created: it tells the log apart from an older one of the same name.

The driver lacks the version of the request that returns it, so the request is spelled out here (Metadata, version 12,
which every broker since 4.0 answers).
"""

from collections.abc import Iterable
from typing import Any, ClassVar
from uuid import UUID

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.api import Request, RequestStruct, Response
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

from shared.domain.errors import Unavailable

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
    node = client.get_random_node()
    if node is None:
        raise Unavailable("Kafka: no broker is known")
    reply = await client.send(node, _TopicIdsRequest(topics))
    return {topic[1]: str(topic[2]) for topic in reply.topics if topic[2] != _NO_ID}
