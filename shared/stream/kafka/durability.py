"""The settings of the brokers that our promises depend on.

A marker is a consumer offset: it must live as long as `stream.marker_retention_days` says. If `min.insync.replicas` is
1, as by default, what a leader alone has counts as written. It is lost with the leader: records, a marker (then its
batch goes out twice) or the outcome of a transaction.

A cluster may forbid us to ask (DescribeConfigs needs a right of its own). That is a warning, not a fault.
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

MANY_COPIES = 3  # with two, a second one that must have it would stop all writing when one is away

_BROKER, _TOPIC = 4, 2
_MINUTES_A_DAY = 1_440
_MILLISECOND = timedelta(milliseconds=1)

log = structlog.get_logger(__name__)


def topic_configs(copies: int, topic: TopicSpec) -> dict[str, str]:
    """The settings that a topic of ours with so many copies needs: with three, one may be away and a write still has
    two. One that keeps its records for a time forgets them by nothing else, whatever the brokers' defaults are, and by
    the brokers' clocks: those of who publishes may be wrong."""
    configs = {MIN_INSYNC: "2"} if copies >= MANY_COPIES else {}
    if topic.retention is None:
        return configs
    kept = {TOPIC_RETENTION: str(topic.retention // _MILLISECOND), TOPIC_SIZE: "-1"}
    return configs | kept | {CLEANUP: "delete", STAMPED_BY: "LogAppendTime"}


async def check_marker_retention(client: AIOKafkaClient, nodes: Iterable[int], *, days: float) -> None:
    """Raise `Unavailable` if a broker forgets markers earlier than that. The deadline is the caller's."""
    for node in nodes:
        minutes = int((await describe_broker(client, node, [RETENTION])).get(RETENTION) or -1)
        if 0 <= minutes < days * _MINUTES_A_DAY:
            raise Unavailable(
                f"Kafka: broker {node} keeps markers for {minutes} minutes ({RETENTION}), "
                f"stream.marker_retention_days says {days:g} days: raise the one or lower the other"
            )


async def check_topic_retention(client: AIOKafkaClient, topics: Mapping[str, TopicSpec]) -> None:
    """Raise `Unavailable` for one of these topics that forgets earlier than is said of it, by age or by size, or that
    keeps only the last record of a key. The deadline is the caller's."""
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
    """Log each of these topics that has three copies or more and is written when its leader alone has it."""
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
    """These settings of a broker; those that we may not see are left out."""
    return (await _describe(client, node, [(_BROKER, str(node), [*names])])).get(str(node), {})


async def describe_topics(
    client: AIOKafkaClient, node: int, topics: Iterable[str], names: Sequence[str]
) -> Mapping[str, Mapping[str, str | None]]:
    """These settings of each of the topics, those that hold; topics that we may not see are left out."""
    return await _describe(client, node, [(_TOPIC, topic, [*names]) for topic in topics])


async def _describe(
    client: AIOKafkaClient, node: int, resources: Sequence[tuple[int, str, list[str]]]
) -> dict[str, Mapping[str, str | None]]:
    """The configuration of those of these resources that we may see."""
    reply = await client.send(node, DescribeConfigsRequest(list(resources)))
    found: dict[str, Mapping[str, str | None]] = {}
    for code, _, _, name, entries in reply.resources:
        error = for_code(code)
        if not code:
            found[name] = {entry[0]: entry[1] for entry in entries}
        elif error is not UnknownTopicOrPartitionError:
            log.warning("Kafka does not tell its configuration", of=name, reason=error.__name__)
    return found
