"""Faults of Kafka that are made on purpose, found, and mended by the remedies. `test_rules.py` has others."""

import secrets
from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from services.commands.doctor.questions import Level
from tests.services.commands.doctor.patient import APP, Patient
from tests.waiting import until

pytestmark = pytest.mark.faulty_server

TOPICS = (Level.FAULT, "Kafka", "topics")
RETENTION = (Level.FAULT, "Kafka", "retention")
SIZE = (Level.FAULT, "Kafka", "message size")


@pytest.fixture
async def admin(patient: Patient) -> AsyncIterator[AIOKafkaAdminClient]:
    """An administrator of topics; the patient's have names of their own, on a broker that others use."""
    name = f"doctor{secrets.token_hex(4)}"
    patient.environment["CARILLON_STREAM_LEDGER_TOPIC"] = f"{name}.ledger"
    patient.environment["CARILLON_STREAM_TOPIC_TEMPLATE"] = f"{name}-%s_%s"
    patient.environment["CARILLON_BUS_LOG_TOPIC"] = f"{name}.bus"
    patient.environment["CARILLON_BUS_LOG_PARTITIONS"] = "2"
    client = AIOKafkaAdminClient(bootstrap_servers=patient.stack.kafka_servers)
    await client.start()
    yield client
    await client.delete_topics([topic for topic in await client.list_topics() if topic.startswith(name)])
    await client.close()


@pytest.mark.native
async def test_topics_that_are_missing_too_small_or_forget_too_early(
    patient: Patient, admin: AIOKafkaAdminClient
) -> None:
    ledger, log = await patient.heal(TOPICS, TOPICS)
    assert (ledger.sentence.endswith("is missing"), log.sentence.endswith("is missing")) == (True, True)
    patient.environment["CARILLON_STREAM_LEDGER_PARTITIONS"] = "66"
    patient.environment["CARILLON_BUS_LOG_PARTITIONS"] = "3"
    ledger, log = await patient.heal(TOPICS, TOPICS)
    assert "has 64 partitions of 66" in ledger.sentence
    assert "has 2 partitions of 3" in log.sentence
    patient.environment["CARILLON_BUS_LOG_DAYS"] = "8"
    [ill] = await patient.heal(RETENTION)
    assert "keeps events for 7 days, and bus.log_days says 8" in ill.sentence


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
    [ill] = await patient.heal(RETENTION)
    assert ill.remedy == "export CARILLON_STREAM_MARKER_RETENTION_DAYS=7"
