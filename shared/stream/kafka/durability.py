"""The brokers' settings that Carillon's promises depend on.

A marker is a consumer offset: it must live for `stream.marker_retention_days`. If `min.insync.replicas` is 1, as by
default, a record counts as written once the leader has it. It is lost with the leader: records, a marker (then its
batch goes out twice) or the outcome of a transaction.

A cluster may forbid Carillon to ask (DescribeConfigs needs a right of its own). That is a warning, not a fault.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import structlog
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest

from shared.domain.errors import Unavailable
from shared.stream import TopicSpec

MIN_INSYNC = "min.insync.replicas"
RETENTION = "offsets.retention.minutes"
TOPIC_RETENTION = "retention.ms"
TOPIC_SIZE = "retention.bytes"
STAMPED_BY = "message.timestamp.type"
CLEANUP = "cleanup.policy"
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")

MANY_COPIES = 3  # with two copies, one missing broker would stop all writing

_BROKER, _TOPIC = 4, 2
_MINUTES_A_DAY = 1_440
_MILLISECOND = timedelta(milliseconds=1)

log = structlog.get_logger(__name__)


def topic_configs(copies: int, topic: TopicSpec) -> dict[str, str]:
    """The settings of a new topic of Carillon's. With three copies, one may be away and a write still has two.
    A topic with a retention forgets by age only, whatever the brokers' defaults are. Brokers set the time of a record,
    because the clocks of publishers may be wrong."""
    configs = {MIN_INSYNC: "2"} if copies >= MANY_COPIES else {}
    if topic.retention is None:
        return configs
    kept = {TOPIC_RETENTION: str(topic.retention // _MILLISECOND), TOPIC_SIZE: "-1"}
    return configs | kept | {CLEANUP: "delete", STAMPED_BY: "LogAppendTime"}


async def check_marker_retention(client: AIOKafkaClient, nodes: Iterable[int], *, days: float) -> None:
    """Raise `Unavailable` if a broker forgets markers before `days`. The caller sets the deadline."""
    for node in nodes:
        minutes = int((await describe_broker(client, node, [RETENTION])).get(RETENTION) or -1)
        if 0 <= minutes < days * _MINUTES_A_DAY:
            raise Unavailable(
                f"Kafka: broker {node} keeps markers for {minutes} minutes ({RETENTION}), "
                f"stream.marker_retention_days says {days:g} days: raise the one or lower the other"
            )


async def check_topic_retention(client: AIOKafkaClient, topics: Mapping[str, TopicSpec]) -> None:
    """Raise `Unavailable` if a topic is compacted, or forgets before its retention, by age or by size. The caller
    sets the deadline."""
    kept = {name: topic.retention for name, topic in topics.items() if topic.retention is not None}
    if not kept:
        return
    node = client.get_random_node()
    if node is None:
        raise Unavailable("Kafka: no broker is known")
    found = await describe_topics(client, node, kept, [TOPIC_RETENTION, TOPIC_SIZE, CLEANUP])
    for name, config in found.items():
        _check_retention(name, config, kept[name])


def _check_retention(name: str, config: Mapping[str, str | None], wanted: timedelta) -> None:
    milliseconds = int(config.get(TOPIC_RETENTION) or -1)
    if 0 <= milliseconds < wanted // _MILLISECOND:
        raise Unavailable(
            f"Kafka: topic {name} keeps its records for {timedelta(milliseconds=milliseconds)} ({TOPIC_RETENTION}), "
            f"our settings say {wanted}: raise the one or lower the other"
        )
    if int(config.get(TOPIC_SIZE) or -1) >= 0:
        raise Unavailable(f"Kafka: topic {name} forgets what is beyond its {TOPIC_SIZE}: set that to -1")
    if "compact" in (config.get(CLEANUP) or ""):
        raise Unavailable(f"Kafka: topic {name} forgets records with the same key: set its {CLEANUP} to delete")


async def warn_of_lone_leaders(client: AIOKafkaClient, topics: Sequence[str]) -> None:
    """Log each topic with three copies or more that counts records as written once the leader alone has them."""
    node = client.get_random_node()
    if node is None:
        raise Unavailable("Kafka: no broker is known")
    reply = await client.send(node, MetadataRequest(list(topics), allow_auto_topic_creation=False))
    copies = {name: min(len(part[3]) for part in parts) for _, name, _, parts in reply.topics if parts}
    found = await describe_topics(client, node, copies, [MIN_INSYNC])
    for name, config in found.items():
        if copies[name] >= MANY_COPIES and int(config.get(MIN_INSYNC) or 1) < 2:
            log.warning("topic can lose what it acknowledged", topic=name, copies=copies[name], set=f"{MIN_INSYNC}=2")


async def describe_broker(client: AIOKafkaClient, node: int, names: Sequence[str]) -> Mapping[str, str | None]:
    """These settings of a broker, without those that Carillon may not see."""
    return (await _describe(client, node, [(_BROKER, str(node), [*names])])).get(str(node), {})


async def describe_topics(
    client: AIOKafkaClient, node: int, topics: Iterable[str], names: Sequence[str]
) -> Mapping[str, Mapping[str, str | None]]:
    """The effective settings of each topic, without topics that Carillon may not see."""
    return await _describe(client, node, [(_TOPIC, topic, [*names]) for topic in topics])


async def _describe(
    client: AIOKafkaClient, node: int, resources: Sequence[tuple[int, str, list[str]]]
) -> dict[str, Mapping[str, str | None]]:
    reply = await client.send(node, DescribeConfigsRequest(list(resources)))
    found: dict[str, Mapping[str, str | None]] = {}
    for code, _, _, name, entries in reply.resources:
        error = for_code(code)
        if not code:
            found[name] = {entry[0]: entry[1] for entry in entries}
        elif error is not UnknownTopicOrPartitionError:
            log.warning("Kafka does not tell its configuration", of=name, reason=error.__name__)
    return found
