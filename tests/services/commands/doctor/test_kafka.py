"""What the doctor finds of Kafka, and that it heals."""

import secrets
from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from services.commands.doctor import kafka
from services.commands.doctor.findings import Level
from shared.runtime.settings import StreamSettings
from shared.stream.kafka.inspection import BrokerVersions, TopicFacts
from tests.services.commands.doctor.patient import APP, Patient
from tests.waiting import until

LEDGER = (Level.FAULT, "Kafka", "ledger")
SIZE = (Level.FAULT, "Kafka", "message size")
SERVERS = "k1:9092,k2:9092"


@pytest.fixture
async def admin(patient: Patient) -> AsyncIterator[AIOKafkaAdminClient]:
    """An administrator of topics; the patient's have names of their own, on a broker that others use."""
    name = f"doctor{secrets.token_hex(4)}"
    patient.environment["CARILLON_STREAM_LEDGER_TOPIC"] = f"{name}.ledger"
    patient.environment["CARILLON_STREAM_TOPIC_TEMPLATE"] = f"{name}-%s_%s"
    client = AIOKafkaAdminClient(bootstrap_servers=patient.stack.kafka_servers)
    await client.start()
    yield client
    await client.delete_topics([topic for topic in await client.list_topics() if topic.startswith(name)])
    await client.close()


@pytest.mark.native
async def test_a_ledger_that_is_missing_or_too_small(patient: Patient, admin: AIOKafkaAdminClient) -> None:
    [ill] = await patient.heal(LEDGER)
    assert ill.sentence.endswith("is missing")
    patient.environment["CARILLON_STREAM_LEDGER_PARTITIONS"] = "66"
    [ill] = await patient.heal(LEDGER)
    assert "has 64 partitions of 66" in ill.sentence


async def has_size_fault(patient: Patient, of: str) -> bool:
    return [ill.check for ill in await patient.ills() if of in ill.sentence] == ["message size"]


@pytest.mark.slow
@pytest.mark.native
async def test_records_that_are_too_large_for_the_broker_or_a_topic(
    patient: Patient, admin: AIOKafkaAdminClient
) -> None:
    await patient.take("carillon init")
    topic = patient.environment["CARILLON_STREAM_TOPIC_TEMPLATE"] % (APP, "apns")
    await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": "500000"})])
    [ill] = await patient.heal(SIZE)
    assert ill.sentence == f"{topic} takes less than 1001024 bytes, which a record may need"

    patient.environment["CARILLON_STREAM_MAX_RECORD_BYTES"] = "2000000"
    servers = patient.stack.kafka_servers
    try:
        # The broker first, and then the topic, which has a limit of its own.
        [broker] = await patient.these_ills(SIZE)
        assert broker.sentence.startswith("broker 1 takes less")
        await patient.take(broker.remedy)
        await until(lambda: has_size_fault(patient, topic), "the broker to take more")
        await patient.heal(SIZE)
    finally:
        undo = "--entity-type brokers --entity-default --delete-config message.max.bytes"
        patient.shell.type(f"kafka-configs.sh --bootstrap-server {servers} --alter {undo}", {})


@pytest.mark.native
async def test_markers_that_are_forgotten_too_early_and_transactions_that_take_too_long(patient: Patient) -> None:
    patient.environment["CARILLON_STREAM_MARKER_RETENTION_DAYS"] = "30"
    [ill] = await patient.heal((Level.FAULT, "Kafka", "retention"))
    assert ill.remedy == "export CARILLON_STREAM_MARKER_RETENTION_DAYS=7"

    # The broker's own limit, transaction.max.timeout.ms, is 15 minutes, as is that of the setting.
    patient.environment["CARILLON_STREAM_TRANSACTION_TIMEOUT_SECONDS"] = "900"
    await patient.these_ills()


async def test_brokers_that_are_too_old_are_told() -> None:
    examination = object.__new__(kafka.Kafka)
    examination._versions = BrokerVersions([1, 2, 3], [2, 3])
    [opinion] = await examination.check_version()
    assert opinion.sentence.endswith("broker 2, 3")


@pytest.mark.parametrize(
    ("topic", "brokers", "said", "remedy"),
    [
        (TopicFacts("t", 8, 3, 0, {"min.insync.replicas": "2"}), 3, "1 topics keep", ""),
        (TopicFacts("t", 8, 1, 0, {"min.insync.replicas": "1"}), 1, "for as long as the one broker does", ""),
        (TopicFacts("t", 8, 1, 0, {}), 3, "fewer than 3 copies: t (1)", ""),
        (
            TopicFacts("t", 8, 3, 0, {"min.insync.replicas": "1"}),
            3,
            "acknowledges what its leader alone has",
            "--entity-name t --add-config min.insync.replicas=2",
        ),
        (
            TopicFacts("t", 8, 3, 0, {"unclean.leader.election.enable": "true"}),
            3,
            "a broker that missed some of it",
            "--entity-name t --add-config unclean.leader.election.enable=false",
        ),
    ],
)
def test_what_a_broker_takes_with_it(topic: TopicFacts, brokers: int, said: str, remedy: str) -> None:
    """The stack has one broker: these cannot be had there."""
    [opinion] = kafka.judge_replication([topic], StreamSettings(), brokers, SERVERS)
    assert said in opinion.sentence
    assert opinion.remedy.endswith(remedy)


def test_partitions_without_a_leader() -> None:
    [opinion] = kafka.judge_ledger(TopicFacts("carillon.ledger", 64, 1, 2, {}), StreamSettings(), SERVERS)
    assert (opinion.level, opinion.sentence.startswith("2 partitions")) == (Level.FAULT, True)


def test_what_kafka_does_not_tell_is_a_warning() -> None:
    [opinion] = kafka.judge_retention({1: {}}, StreamSettings())
    assert opinion.level is Level.WARNING
