"""The questions to Kafka."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from services.commands.doctor.examination import ADDRESS, ROUND_TRIP, TLS, Address, Examination, Question
from services.commands.doctor.findings import Opinion, Opinions, fault, name_some, warn, well
from services.commands.doctor.shell import INIT, command, export
from shared.domain.push.topics import topic_pattern
from shared.runtime.settings import StreamSettings
from shared.stream.kafka.inspection import BrokerVersions, KafkaInspection, TopicFacts

KAFKA = "Kafka"
RETENTION, MIN_INSYNC = "offsets.retention.minutes", "min.insync.replicas"
BROKER_BYTES, TOPIC_BYTES = "message.max.bytes", "max.message.bytes"
UNCLEAN = "unclean.leader.election.enable"
INTERNAL = ("__consumer_offsets", "__transaction_state")
# What a produce batch has beside a record.
FRAME_BYTES = 1_024
MANY_COPIES = 3
_MINUTES_A_DAY = 1_440
_KAFKA_PORT = 9092


class Kafka(Examination):
    """The stream."""

    of = KAFKA
    setting = "stream.url"

    def __init__(self, settings: StreamSettings, inspection: KafkaInspection, log: str) -> None:
        self._settings = settings
        self._log = log
        self._inspection = inspection
        parts = urlsplit(settings.url)
        self.addresses = kafka_addresses(settings.url)
        self._servers = ",".join(map(str, self.addresses))
        self.uses_tls = parts.scheme != "kafka"
        self.where = self._servers
        self._versions: BrokerVersions | None = None

    async def check_login(self) -> Opinions:
        """It lets us in, and its brokers can be reached where it says that they are."""
        self._versions = await self._inspection.read_versions()
        count = len(self._versions.nodes)
        return well(f"{count} broker{'s' if count > 1 else ''} answer{'s' if count == 1 else ''} where Kafka says")

    async def check_version(self) -> Opinions:
        """It is one whose promises we know."""
        old = self._versions.old if self._versions else ()
        if old:
            return fault(f"older than 4.0, where a marker may be late: broker {', '.join(map(str, old))}")
        return well("every broker is of version 4.0 or later")

    async def ping(self) -> None:
        await self._inspection.read_topics([self._settings.ledger_topic], [])

    async def check_ledger(self) -> Opinions:
        """The ledger is there, and large enough."""
        name = self._settings.ledger_topic
        found = (await self._inspection.read_topics([name], [])).get(name)
        return judge_ledger(found, self._settings, self._servers)

    async def check_replication(self) -> Opinions:
        """Acknowledged records survive a broker."""
        pushes = await self._find_push_topics()
        found = await self._inspection.read_topics(
            [self._settings.ledger_topic, self._log, *INTERNAL, *pushes], [MIN_INSYNC, UNCLEAN]
        )
        brokers = len(self._versions.nodes) if self._versions else 1
        return judge_replication(list(found.values()), self._settings, brokers, self._servers)

    async def check_retention(self) -> Opinions:
        """Markers are kept for long enough."""
        return judge_retention(await self._inspection.read_brokers([RETENTION]), self._settings)

    async def check_sizes(self) -> Opinions:
        """The largest record is taken."""
        brokers = await self._inspection.read_brokers([BROKER_BYTES])
        topics = await self._inspection.read_topics(await self._find_push_topics(), [TOPIC_BYTES])
        return judge_sizes(brokers, list(topics.values()), self._settings, self._servers)

    async def check_transactions(self) -> Opinions:
        """A transaction can be had."""
        await self._inspection.try_transaction(timeout_seconds=self._settings.transaction_timeout_seconds)
        return well("one was begun, and aborted")

    async def _find_push_topics(self) -> Sequence[str]:
        return await self._inspection.find_topics(topic_pattern(self._settings.topic_template))

    questions = (
        ADDRESS,
        Question(
            "login",
            "Kafka lets us in, and each of its brokers answers at the address that the cluster tells of it "
            "(`advertised.listeners`).",
            check_login,
            first=True,
        ),
        ROUND_TRIP,
        TLS,
        Question("version", "Every broker is Kafka 4.0 or later: workers take no work otherwise.", check_version),
        Question(
            "ledger",
            "The topic of the markers is there, with `stream.ledger_partitions`, and each partition has a leader.",
            check_ledger,
        ),
        Question(
            "replication",
            "Topics have as many copies as they should, and with three of them a write needs two "
            "(`min.insync.replicas`); no broker that missed some of a topic may become its leader "
            "(`docs/operating-kafka.md`).",
            check_replication,
        ),
        Question(
            "retention",
            "The brokers keep markers for `stream.marker_retention_days` at least (`offsets.retention.minutes`): "
            "workers take no work otherwise.",
            check_retention,
        ),
        Question(
            "message size",
            "The brokers and the push topics take a record of `stream.max_record_bytes`.",
            check_sizes,
        ),
        Question(
            "transactions",
            "A transaction with our time-out begins, and is aborted again; it holds no records.",
            check_transactions,
        ),
    )


def kafka_addresses(url: str) -> list[Address]:
    """The addresses of the servers in a URL of Kafka."""
    return [_address(server) for server in urlsplit(url).netloc.rpartition("@")[2].split(",")]


def _address(server: str) -> Address:
    host, colon, port = server.rpartition(":")
    return Address(host.strip("[]"), int(port)) if colon else Address(server, _KAFKA_PORT)


def judge_ledger(found: TopicFacts | None, settings: StreamSettings, servers: str) -> Opinions:
    """Whether the ledger can hold the markers."""
    name, wanted = settings.ledger_topic, settings.ledger_partitions
    if found is None:
        return fault(f"the topic {name} is missing", INIT)
    if found.leaderless:
        return fault(f"{found.leaderless} partitions of {name} have no leader: their brokers are away")
    if found.partitions < wanted:
        words = ("--bootstrap-server", servers, "--alter", "--topic", name, "--partitions", str(wanted))
        return fault(f"{name} has {found.partitions} partitions of {wanted}", command("kafka-topics.sh", *words))
    return well(f"{name} has {found.partitions} partitions")


def judge_replication(topics: Sequence[TopicFacts], settings: StreamSettings, brokers: int, servers: str) -> Opinions:
    """Whether what is acknowledged survives a broker."""
    opinions: list[Opinion] = []
    wanted = min(max(settings.replication_factor, MANY_COPIES), brokers)
    if few := [f"{topic.name} ({topic.copies})" for topic in topics if topic.copies < wanted]:
        opinions += warn(f"{brokers} brokers, and fewer than {wanted} copies: {name_some(few)}")
    for topic in topics:
        if topic.copies >= MANY_COPIES and int(topic.settings.get(MIN_INSYNC) or 2) < 2:
            said = f"{topic.name} has {topic.copies} copies, and acknowledges what its leader alone has"
            opinions += warn(said, alter_topic(servers, topic.name, f"{MIN_INSYNC}=2"))
        if topic.settings.get(UNCLEAN) == "true":
            said = f"{topic.name} may be led by a broker that missed some of it"
            opinions += warn(said, alter_topic(servers, topic.name, f"{UNCLEAN}=false"))
    said = f"{len(topics)} topics keep what they acknowledge"
    return opinions or well(said if brokers > 1 else f"{said} for as long as the one broker does")


def judge_retention(brokers: Mapping[int, Mapping[str, str | None]], settings: StreamSettings) -> Opinions:
    """Whether the brokers keep markers for long enough."""
    kept = {node: int(found[RETENTION] or 0) for node, found in brokers.items() if RETENTION in found}
    if not kept:
        return warn(f"Kafka does not tell us {RETENTION}: we need the right DescribeConfigs on the cluster")
    least, days = min(kept.values()), settings.marker_retention_days
    if least >= days * _MINUTES_A_DAY:
        return well(f"markers are kept for {least / _MINUTES_A_DAY:g} days, and {days:g} are asked for")
    said = f"markers are kept for {least / _MINUTES_A_DAY:.3g} days, and stream.marker_retention_days says {days:g}"
    return fault(
        f"{said}: ask for less, or raise {RETENTION} of the brokers",
        export("stream.marker_retention_days", f"{int(least / _MINUTES_A_DAY * 1_000) / 1_000:g}"),
    )


def judge_sizes(
    brokers: Mapping[int, Mapping[str, str | None]],
    topics: Sequence[TopicFacts],
    settings: StreamSettings,
    servers: str,
) -> Opinions:
    """Whether the largest record is taken."""
    needed = settings.max_record_bytes + FRAME_BYTES
    opinions: list[Opinion] = []
    if small := [node for node, found in brokers.items() if int(found.get(BROKER_BYTES) or needed) < needed]:
        said = f"broker {', '.join(map(str, small))} takes less than {needed} bytes, which a record may need"
        whole = ("--entity-type", "brokers", "--entity-default", "--add-config", f"{BROKER_BYTES}={needed}")
        opinions += fault(said, command("kafka-configs.sh", "--bootstrap-server", servers, "--alter", *whole))
    else:
        # A topic that has no limit of its own has its broker's.
        for topic in topics:
            if int(topic.settings.get(TOPIC_BYTES) or needed) < needed:
                said = f"{topic.name} takes less than {needed} bytes, which a record may need"
                opinions += fault(said, alter_topic(servers, topic.name, f"{TOPIC_BYTES}={needed}"))
    return opinions or well(f"records of {settings.max_record_bytes} bytes are taken")


def alter_topic(servers: str, topic: str, change: str) -> str:
    """The command that sets something of a topic."""
    entity = ("--entity-type", "topics", "--entity-name", topic, "--add-config", change)
    return command("kafka-configs.sh", "--bootstrap-server", servers, "--alter", *entity)
