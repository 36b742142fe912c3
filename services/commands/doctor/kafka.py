"""The questions to Kafka."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import cast
from urllib.parse import urlsplit

from services.commands.doctor.questions import (
    INIT,
    LOGIN,
    Answer,
    Finding,
    Given,
    Question,
    Subject,
    command,
    export,
    fault,
    name_some,
    reach,
    show_address,
    warn,
    well,
)
from shared.domain.push.records import topic_pattern
from shared.runtime.bus_settings import BusSettings
from shared.runtime.server_settings import StreamSettings
from shared.runtime.settings import Settings
from shared.stream.kafka import KafkaStream
from shared.stream.kafka.cluster import (
    CLEANUP,
    INTERNAL_TOPICS,
    MANY_COPIES,
    MIN_INSYNC,
    RETENTION,
    TOPIC_RETENTION,
    TOPIC_SIZE,
    TopicFacts,
    kafka_addresses,
)

UNCLEAN = "unclean.leader.election.enable"
BROKER_BYTES, TOPIC_BYTES = "message.max.bytes", "max.message.bytes"
FRAME_BYTES = 1_024  # what a produce batch has beside a record
_MINUTES_A_DAY = 1_440
_MILLISECOND = timedelta(milliseconds=1)

BrokerSettings = Mapping[int, Mapping[str, str | None]]


async def check_login(given: Given) -> Answer:
    """Kafka lets us in, each of its brokers answers at the address that the cluster tells of it
    (`advertised.listeners`), and all are of version 4.0 or later: workers take no work otherwise."""
    away = await reach(*kafka_addresses(given.settings.stream.url))
    brokers = await _stream(given).inspection.find_brokers()
    if old := [str(node) for node, is_old in brokers.items() if is_old]:
        return fault(f"older than 4.0, where a marker may be late: broker {', '.join(old)}")
    return (*away, *well(f"{len(brokers)} broker{'s' if len(brokers) > 1 else ''} of Kafka 4.0 or later let us in"))


async def check_topics(given: Given) -> Answer:
    """The topic of the markers is there with `stream.ledger_partitions`, and the bus's log (`bus.log_topic`) with
    `bus.log_partitions`. Each partition has a leader. If not, workers or fan-outs do not start, or nothing can be
    published."""
    stream, bus = given.settings.stream, given.settings.bus
    found = await _read_topics(given, [stream.ledger_topic, bus.log_topic], [])
    ledger, log = found.get(stream.ledger_topic), found.get(bus.log_topic)
    more = ("--alter", "--topic", stream.ledger_topic, "--partitions", str(stream.ledger_partitions))
    alter = command("kafka-topics.sh", "--bootstrap-server", _servers(given.settings), *more)
    # More partitions of the log would send the events of a URL to another one, where they overtake each other.
    fewer = export("bus.log_partitions", str(log.partitions if log else 0))
    return (
        *judge_topic(stream.ledger_topic, ledger, stream.ledger_partitions, alter),
        *judge_topic(bus.log_topic, log, bus.log_partitions, fewer),
    )


async def check_replication(given: Given) -> Answer:
    """Topics have as many copies as they should, and with three of them a write needs two (`min.insync.replicas`); no
    broker that missed some of a topic may become its leader (`docs/operating-kafka.md`)."""
    settings = given.settings
    names = [settings.stream.ledger_topic, settings.bus.log_topic, *INTERNAL_TOPICS]
    found = await _read_topics(given, names, [MIN_INSYNC, UNCLEAN], pushes=True)
    brokers = len(await _stream(given).inspection.find_brokers())
    return judge_replication(list(found.values()), settings.stream, brokers, _servers(settings))


async def check_retention(given: Given) -> Answer:
    """The brokers keep markers for `stream.marker_retention_days` at least (`offsets.retention.minutes`), and the bus's
    log keeps all events for `bus.log_days`: workers and fan-outs do not start otherwise."""
    settings = given.settings
    markers = judge_marker_retention(await _stream(given).inspection.read_brokers([RETENTION]), settings.stream)
    found = await _read_topics(given, [settings.bus.log_topic], [TOPIC_RETENTION, TOPIC_SIZE, CLEANUP])
    log = found.get(settings.bus.log_topic)
    return (*markers, *(judge_log_retention(log, settings.bus, _servers(settings)) if log is not None else ()))


async def check_sizes(given: Given) -> Answer:
    """The brokers and the push topics take a record of `stream.max_record_bytes`."""
    brokers = await _stream(given).inspection.read_brokers([BROKER_BYTES])
    topics = await _read_topics(given, [], [TOPIC_BYTES], pushes=True)
    return judge_sizes(brokers, list(topics.values()), given.settings.stream, _servers(given.settings))


async def check_transactions(given: Given) -> Answer:
    """A transaction with our time-out begins, and is aborted again; it holds no records."""
    ledger, seconds = given.settings.stream.ledger_topic, given.settings.stream.transaction_timeout_seconds
    if not await _read_topics(given, [ledger], []):
        return ()  # the question of topics says so
    await _stream(given).inspection.try_transaction(seconds)
    return well("one was begun, and aborted")


def judge_topic(name: str, found: TopicFacts | None, wanted: int, remedy: str) -> Answer:
    """Whether the topic has at least the wanted partitions."""
    if found is None:
        return fault(f"the topic {name} is missing", INIT)
    if found.leaderless:
        return fault(f"{found.leaderless} partitions of {name} have no leader: their brokers are away")
    if found.partitions < wanted:
        return fault(f"{name} has {found.partitions} partitions of {wanted}", remedy)
    return well(f"{name} has {found.partitions} partitions")


def judge_replication(topics: Sequence[TopicFacts], settings: StreamSettings, brokers: int, servers: str) -> Answer:
    """Whether acknowledged records survive a broker."""
    opinions: list[Finding] = []
    wanted = min(max(settings.replication_factor, MANY_COPIES), brokers)
    if few := [f"{topic.name} ({topic.copies})" for topic in topics if topic.copies < wanted]:
        opinions += warn(f"{brokers} brokers, and fewer than {wanted} copies: {name_some(few)}")
    for topic in topics:
        if topic.copies >= MANY_COPIES and int(topic.settings.get(MIN_INSYNC) or 2) < 2:
            said = f"{topic.name} has {topic.copies} copies, and acknowledges records that its leader alone has"
            opinions += warn(said, _alter(servers, topic.name, f"{MIN_INSYNC}=2"))
        if topic.settings.get(UNCLEAN) == "true":
            said = f"{topic.name} may be led by a broker that missed some of it"
            opinions += warn(said, _alter(servers, topic.name, f"{UNCLEAN}=false"))
    said = f"{len(topics)} topics keep what they acknowledge"
    return opinions or well(said if brokers > 1 else f"{said} for as long as the one broker does")


def judge_marker_retention(brokers: BrokerSettings, settings: StreamSettings) -> Answer:
    """Whether the brokers keep markers for long enough."""
    kept = [int(found[RETENTION] or 0) for found in brokers.values() if RETENTION in found]
    if not kept:
        return warn(f"Kafka does not tell us {RETENTION}: we need the right DescribeConfigs on the cluster")
    found, wanted = min(kept) / _MINUTES_A_DAY, settings.marker_retention_days
    if found >= wanted:
        return well(f"markers are kept for {found:g} days, and {wanted:g} are asked for")
    return fault(
        f"markers are kept for {found:.3g} days, and stream.marker_retention_days says {wanted:g}: ask for less, or "
        f"raise {RETENTION} of the brokers",
        export("stream.marker_retention_days", f"{int(found * 1_000) / 1_000:g}"),
    )


def judge_log_retention(found: TopicFacts, settings: BusSettings, servers: str) -> Answer:
    """Whether the log keeps all events for as long as promised."""
    name, config = found.name, found.settings
    if TOPIC_RETENTION not in config:
        return warn(f"Kafka does not tell us {TOPIC_RETENTION} of {name}: we need the right DescribeConfigs on it")
    opinions: list[Finding] = []
    wanted, kept = timedelta(days=settings.log_days) // _MILLISECOND, int(config[TOPIC_RETENTION] or -1)
    if 0 <= kept < wanted:
        said = f"{name} keeps events for {kept * _MILLISECOND / timedelta(days=1):.3g} days, and bus.log_days says"
        opinions += fault(f"{said} {settings.log_days:g}", _alter(servers, name, f"{TOPIC_RETENTION}={wanted}"))
    if int(config.get(TOPIC_SIZE) or -1) >= 0:
        said = f"{name} forgets events beyond {config[TOPIC_SIZE]} bytes"
        opinions += fault(said, _alter(servers, name, f"{TOPIC_SIZE}=-1"))
    if "compact" in (config.get(CLEANUP) or ""):
        said = f"{name} forgets events that have the same key"
        opinions += fault(said, _alter(servers, name, f"{CLEANUP}=delete"))
    return opinions or well(f"events are kept for {settings.log_days:g} days at least")


def judge_sizes(
    brokers: BrokerSettings, topics: Sequence[TopicFacts], settings: StreamSettings, servers: str
) -> Answer:
    """Whether the largest record is taken."""
    needed = settings.max_record_bytes + FRAME_BYTES
    if small := [str(node) for node, found in brokers.items() if int(found.get(BROKER_BYTES) or needed) < needed]:
        said = f"broker {', '.join(small)} takes less than {needed} bytes, which a record may need"
        whole = ("--entity-type", "brokers", "--entity-default", "--add-config", f"{BROKER_BYTES}={needed}")
        return fault(said, command("kafka-configs.sh", "--bootstrap-server", servers, "--alter", *whole))
    opinions: list[Finding] = []
    # A topic that has no limit of its own has its broker's.
    for topic in topics:
        if int(topic.settings.get(TOPIC_BYTES) or needed) < needed:
            said = f"{topic.name} takes less than {needed} bytes, which a record may need"
            opinions += fault(said, _alter(servers, topic.name, f"{TOPIC_BYTES}={needed}"))
    return opinions or well(f"records of {settings.max_record_bytes} bytes are taken")


def _alter(servers: str, topic: str, change: str) -> str:
    """The command that sets something of a topic."""
    entity = ("--entity-type", "topics", "--entity-name", topic, "--add-config", change)
    return command("kafka-configs.sh", "--bootstrap-server", servers, "--alter", *entity)


def _stream(given: Given) -> KafkaStream:
    return cast(KafkaStream, given.capabilities.stream)


async def _read_topics(
    given: Given, names: Sequence[str], settings: Sequence[str], *, pushes: bool = False
) -> dict[str, TopicFacts]:
    """The facts of these topics, and of the push topics."""
    patterns = [*map(re.escape, names), *([topic_pattern(given.settings.stream.topic_template)] if pushes else [])]
    return await _stream(given).inspection.read_topics("|".join(patterns), settings)


def _servers(settings: Settings) -> str:
    return ",".join(show_address(*address) for address in kafka_addresses(settings.stream.url))


KAFKA = Subject(
    "Kafka",
    (
        Question(LOGIN, check_login),
        Question("topics", check_topics),
        Question("replication", check_replication),
        Question("retention", check_retention),
        Question("message size", check_sizes),
        Question("transactions", check_transactions),
    ),
    lambda settings: None if urlsplit(settings.stream.url).scheme == "local" else _servers(settings),
)
