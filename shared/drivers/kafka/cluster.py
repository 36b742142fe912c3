"""Topics, versions and settings of the cluster: `carillon init` creates the topics, every process verifies them, and
`carillon doctor` asks for what the promises depend on. A marker is a consumer offset, so the offsets' retention counts.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import collect_hosts
from aiokafka.errors import KafkaConnectionError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.admin import ApiVersionRequest, DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import TopicPartition
from msgspec import Struct

from shared.core.errors import Unavailable
from shared.drivers.kafka import TopicSpec
from shared.drivers.kafka.servers import STOP_SECONDS, KafkaServers, answer_within, stop, translate_errors
from shared.runtime.server_settings import StreamSettings

log = structlog.get_logger(__name__)
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
    found = await describe_topics(client, any_node(client), kept, [TOPIC_RETENTION, TOPIC_SIZE, CLEANUP])
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
    node = any_node(client)
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


# EndTxn version 5 came with Kafka 4.0 (KIP-890): brokers from there on show a marker as soon as its lane is fenced.
_END_TXN, _SINCE_4_0 = 26, 5


def kafka_addresses(url: str) -> list[tuple[str, int]]:
    servers = collect_hosts(urlsplit(url).netloc.rpartition("@")[2], randomize=False)
    return [(host, port) for host, port, _ in servers]


def is_older_than_4_0(versions: Any) -> bool:
    """Whether a broker with this answer to `ApiVersions` may show a marker late."""
    newest = {key: highest for key, _, highest in versions.api_versions}
    return bool(newest.get(_END_TXN, 0) < _SINCE_4_0)


class TopicFacts(Struct, frozen=True):
    """A topic: `copies` is the smallest number of a partition, `leaderless` counts partitions without a leader,
    `settings` are those that Carillon may see."""

    name: str
    partitions: int
    copies: int = 1
    leaderless: int = 0
    settings: Mapping[str, str | None] = {}


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


def any_node(client: AIOKafkaClient) -> int:
    node: int | None = client.get_random_node()
    if node is None:
        raise Unavailable("Kafka: no broker is known")
    return node


async def close(client: AIOKafkaClient | AIOKafkaAdminClient) -> None:
    """Close a client within `STOP_SECONDS`, or give up: a broker may let it hang."""
    with suppress(Exception):
        async with asyncio.timeout(STOP_SECONDS):
            await client.close()


class Cluster:
    """Topics and versions, read over one metadata connection."""

    def __init__(
        self,
        servers: KafkaServers,
        settings: StreamSettings,
        *,
        client_id: str,
        push_topics: str,
    ) -> None:
        self._servers = servers
        self._client_id = client_id
        self._settings = settings
        self._push_topics = re.compile(push_topics)
        self._timeout_seconds = settings.request_timeout_seconds
        self._client: AIOKafkaClient | None = None
        self._opening = asyncio.Lock()

    async def setup(self, topics: Mapping[str, TopicSpec]) -> None:
        ledger, partitions = self._settings.ledger_topic, self._settings.ledger_partitions
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
        ledger, partitions = self._settings.ledger_topic, self._settings.ledger_partitions
        topics = await self._topics()
        _check_partitions({ledger: partitions} | {name: topic.partitions for name, topic in wanted.items()}, topics)
        push_topics = [name for name in topics if self._push_topics.fullmatch(name)]
        async with self._ask() as client:
            await check_marker_retention(client, versions, days=self._settings.marker_retention_days)
            await check_topic_retention(client, wanted)
            await warn_of_lone_leaders(client, [ledger, *wanted, *INTERNAL_TOPICS, *push_topics])

    async def find_brokers(self) -> dict[int, bool]:
        """Ask each broker at its advertised address whether it is older than 4.0."""
        return {node: is_older_than_4_0(reply) for node, reply in sorted((await self._versions()).items())}

    async def read_topics(self, pattern: str, settings: Sequence[str]) -> dict[str, TopicFacts]:
        async with self._ask() as client:
            node = any_node(client)
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

    async def try_transaction(self, timeout_seconds: float) -> None:
        """Begin a transaction with this time-out and an offset of the ledger, and abort it. A missing ledger is waited
        for."""
        producer = AIOKafkaProducer(
            **self._servers.options(f"{self._client_id}-doctor"),
            transactional_id=f"carillon-doctor-{secrets.token_hex(12)}",  # two of one id would fence each other
            transaction_timeout_ms=int(timeout_seconds * 1000),
            request_timeout_ms=int(self._timeout_seconds * 1000),
        )
        try:
            async with answer_within(self._timeout_seconds):
                await producer.start()
                await producer.begin_transaction()
                offsets = {TopicPartition(self._settings.ledger_topic, 0): 0}
                await producer.send_offsets_to_transaction(offsets, "carillon.job.doctor")
                await producer.abort_transaction()
        finally:
            await stop(producer)

    async def ping(self) -> None:
        await self._topics()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await close(client)

    async def _create(self, topics: Mapping[str, TopicSpec]) -> None:
        admin = AIOKafkaAdminClient(**self._servers.options(f"{self._client_id}-admin"))
        with translate_errors():
            try:
                async with asyncio.timeout(2 * self._timeout_seconds):
                    await admin.start()
                    copies = self._settings.replication_factor
                    reply = await admin.create_topics(
                        [
                            NewTopic(name, topic.partitions, copies, topic_configs=topic_configs(copies, topic))
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
        async with self._ask() as client:
            await client.force_metadata_update()
            nodes = [broker.nodeId for broker in client.cluster.brokers()]
            replies = await asyncio.gather(*(client.send(node, ApiVersionRequest()) for node in nodes))
        return dict(zip(nodes, replies, strict=True))

    async def _topics(self) -> dict[str, int]:
        async with self._ask() as client:
            metadata = await client.fetch_all_metadata()
        return {topic: len(metadata.partitions_for_topic(topic) or ()) for topic in metadata.topics()}

    @asynccontextmanager
    async def _ask(self) -> AsyncIterator[AIOKafkaClient]:
        async with self._opening:
            if self._client is None:
                async with answer_within(self._timeout_seconds):
                    self._client = await connect(self._servers, client_id=f"{self._client_id}-cluster")
            client = self._client
        async with answer_within(self._timeout_seconds):
            yield client


def _check_partitions(wanted: Mapping[str, int], found: Mapping[str, int]) -> None:
    for name, count in wanted.items():
        if (present := found.get(name, 0)) < count:
            raise Unavailable(f"Kafka: topic {name} has {present} partitions of {count}: run `carillon init`")
