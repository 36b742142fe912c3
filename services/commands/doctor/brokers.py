"""The questions to RabbitMQ, to its management API, and to Kafka."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import cast
from urllib.parse import unquote, urlsplit

from services.commands.doctor.questions import (
    INIT,
    LOGIN,
    Answer,
    Finding,
    Given,
    Question,
    Subject,
    address_of,
    command,
    export,
    fault,
    name_some,
    reach,
    show_address,
    warn,
    well,
)
from shared.core.errors import Denied, NotFound, Unavailable
from shared.drivers.kafka.cluster import (
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
from shared.drivers.kafka.stream import KafkaStream
from shared.drivers.rabbitmq.broker import RabbitBroker
from shared.drivers.rabbitmq.management import RabbitInspection
from shared.push.rules.records import topic_pattern
from shared.runtime.bus_settings import BusSettings
from shared.runtime.server_settings import StreamSettings
from shared.runtime.settings import Settings

_PORTS = {"amqp": 5672, "amqps": 5671, "http": 80, "https": 443}


async def check_rabbitmq(given: Given) -> Answer:
    """RabbitMQ can be reached, accepts the user and the password of `broker.url`, and has its virtual host. `carillon
    init` makes one that is missing."""
    inspection = _inspection(given)
    await reach(_address(given.settings.broker.url))
    try:
        version = await inspection.read_version()
    except NotFound as error:
        return fault(str(error), INIT)
    except Denied as error:
        return fault(str(error), command("rabbitmqctl", "change_password", inspection.user, "<its password>"))
    return well(f"RabbitMQ {version} lets us in")


async def check_queues(given: Given) -> Answer:
    """Every queue of tasks is there. All are quorum queues: any other queue loses its messages with its node. (Only the
    management API tells the type.)"""
    inspection = _inspection(given)
    if missing := await inspection.find_missing(given.queues):
        return fault(f"missing: {name_some(missing)}", INIT)
    try:
        others = await inspection.find_other_types(given.queues)
    except Unavailable:  # which its own question tells
        return well(f"all {len(given.queues)} are there")
    if not others:
        return well(f"all {len(given.queues)} are there, as quorum queues")
    delete = [command("rabbitmqctl", "delete_queue", "-p", inspection.vhost, name) for name in others]
    said = name_some([f"{name} is {kind}" for name, kind in others.items()])
    return fault(f"not quorum queues: {said}. Their tasks are queued again later", " && ".join([*delete, INIT]))


async def check_management(given: Given) -> Answer:
    """The management API can be reached, and accepts the user and the password of `broker.management_url`; the user
    needs the tag `management` at least. `carillon init` needs it, the other processes do not."""
    await reach(_address(given.settings.broker.management_url))
    return well(f"the management API of RabbitMQ {await _inspection(given).read_management_version()} lets us in")


async def check_rights(given: Given) -> Answer:
    """The user of `broker.url` may read the queues of tasks, and write to `amq.default`: processes need no more
    (`docs/security.md`). Only an administrator of the management API may ask: other users get a warning."""
    inspection = _inspection(given)
    try:
        rights = await inspection.read_rights(given.queues)
    except Denied:
        return _unknown(given, "whether we have all rights")
    if not rights.missing:
        return well(f"{inspection.user} may do all that Carillon does")
    patterns = (rights.configure, rights.write, rights.read)
    change = command("rabbitmqctl", "set_permissions", "-p", inspection.vhost, inspection.user, *patterns)
    return fault(f"{inspection.user} may not {name_some(rights.missing)}", change)


async def check_alarms(given: Given) -> Answer:
    """All nodes run, and none is short of memory or disk space: one that is stops all publishing. Only a user with the
    tag `monitoring` may ask."""
    try:
        alarms = await _inspection(given).find_alarms()
    except Denied:
        return _unknown(given, "whether a node is short of memory or disk space")
    if alarms:
        return fault(f"{name_some(alarms)}: while a node is short of memory or disk space, RabbitMQ takes no messages")
    return well("no node is short of memory or disk space, or away")


def _inspection(given: Given) -> RabbitInspection:
    return cast(RabbitBroker, given.servers.broker).inspection


def _address(url: str) -> tuple[str, int]:
    return address_of(url, _PORTS[urlsplit(url).scheme])


def _unknown(given: Given, what: str) -> Answer:
    manager = unquote(urlsplit(given.settings.broker.management_url).username or "guest")
    tag = command("rabbitmqctl", "set_user_tags", manager, "administrator")
    return warn(f"the management API does not tell {manager} {what}", tag)


def _place(settings: Settings) -> str | None:
    url = settings.broker.url
    if urlsplit(url).scheme == "memory":
        return None
    return f"{show_address(*_address(url))}, virtual host {unquote(urlsplit(url).path[1:]) or '/'}"


RABBITMQ = Subject("RabbitMQ", (Question(LOGIN, check_rabbitmq), Question("queues", check_queues)), _place)
MANAGEMENT = Subject(
    "RabbitMQ's management",
    (
        Question(LOGIN, check_management),
        Question("rights", check_rights, needs=("RabbitMQ",)),
        Question("alarms", check_alarms),
    ),
    lambda settings: _place(settings) and show_address(*_address(settings.broker.management_url)),
)


UNCLEAN = "unclean.leader.election.enable"
BROKER_BYTES, TOPIC_BYTES = "message.max.bytes", "max.message.bytes"
FRAME_BYTES = 1_024  # what a produce batch has beside a record
_MINUTES_A_DAY = 1_440
_MILLISECOND = timedelta(milliseconds=1)

BrokerSettings = Mapping[int, Mapping[str, str | None]]


async def check_kafka(given: Given) -> Answer:
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
    servers, most = _servers(given.settings), given.settings.stream.max_record_bytes
    brokers = await _stream(given).inspection.read_brokers([BROKER_BYTES])
    topics = await _read_topics(given, [], [TOPIC_BYTES], pushes=True)
    needed = most + FRAME_BYTES
    if small := [str(node) for node, found in brokers.items() if int(found.get(BROKER_BYTES) or needed) < needed]:
        said = f"broker {', '.join(small)} takes less than {needed} bytes, which a record may need"
        whole = ("--entity-type", "brokers", "--entity-default", "--add-config", f"{BROKER_BYTES}={needed}")
        return fault(said, command("kafka-configs.sh", "--bootstrap-server", servers, "--alter", *whole))
    opinions: list[Finding] = []
    # A topic that has no limit of its own has its broker's.
    for topic in topics.values():
        if int(topic.settings.get(TOPIC_BYTES) or needed) < needed:
            said = f"{topic.name} takes less than {needed} bytes, which a record may need"
            opinions += fault(said, _alter(servers, topic.name, f"{TOPIC_BYTES}={needed}"))
    return opinions or well(f"records of {most} bytes are taken")


async def check_transactions(given: Given) -> Answer:
    """A transaction with our time-out begins, and is aborted again; it holds no records."""
    ledger, seconds = given.settings.stream.ledger_topic, given.settings.stream.transaction_timeout_seconds
    if not await _read_topics(given, [ledger], []):
        return ()  # the question of topics says so
    await _stream(given).inspection.try_transaction(seconds)
    return well("one was begun, and aborted")


def judge_topic(name: str, found: TopicFacts | None, wanted: int, remedy: str) -> Answer:
    if found is None:
        return fault(f"the topic {name} is missing", INIT)
    if found.leaderless:
        return fault(f"{found.leaderless} partitions of {name} have no leader: their brokers are away")
    if found.partitions < wanted:
        return fault(f"{name} has {found.partitions} partitions of {wanted}", remedy)
    return well(f"{name} has {found.partitions} partitions")


def judge_replication(topics: Sequence[TopicFacts], settings: StreamSettings, brokers: int, servers: str) -> Answer:
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


def _alter(servers: str, topic: str, change: str) -> str:
    entity = ("--entity-type", "topics", "--entity-name", topic, "--add-config", change)
    return command("kafka-configs.sh", "--bootstrap-server", servers, "--alter", *entity)


def _stream(given: Given) -> KafkaStream:
    return cast(KafkaStream, given.servers.stream)


async def _read_topics(
    given: Given, names: Sequence[str], settings: Sequence[str], *, pushes: bool = False
) -> dict[str, TopicFacts]:
    patterns = [*map(re.escape, names), *([topic_pattern(given.settings.stream.topic_template)] if pushes else [])]
    return await _stream(given).inspection.read_topics("|".join(patterns), settings)


def _servers(settings: Settings) -> str:
    return ",".join(show_address(*address) for address in kafka_addresses(settings.stream.url))


KAFKA = Subject(
    "Kafka",
    (
        Question(LOGIN, check_kafka),
        Question("topics", check_topics),
        Question("replication", check_replication),
        Question("retention", check_retention),
        Question("message size", check_sizes),
        Question("transactions", check_transactions),
    ),
    lambda settings: None if urlsplit(settings.stream.url).scheme == "local" else _servers(settings),
)
