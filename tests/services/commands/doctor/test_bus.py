"""What the doctor finds of the bus: each ill is made on purpose, found, and healed by what he says."""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from services.commands.doctor.bus import judge_secrets, judge_suspended
from services.commands.doctor.bus_log import LogReading, judge_positions, judge_readers, judge_retention, judge_topic
from services.commands.doctor.findings import Finding, Level
from services.parts.bus.common import BusPart
from shared.domain.bus.subscriptions import EventSubscription, SubscriptionStatus
from shared.domain.positions import Position
from shared.flow.bus.subscription_secrets import seal_secret
from shared.runtime.bus_settings import BusSettings
from shared.secrets import KeyRing, fresh_key
from shared.store.bus.flushes import LogPosition
from shared.stream.kafka.inspection import TopicFacts
from tests.services.commands.doctor.patient import Patient
from tests.store.bus.made_subscriptions import NOON, add, change, made
from tests.waiting import until

TOPIC = (Level.FAULT, "Log of the bus", "topic")
RETENTION = (Level.FAULT, "Log of the bus", "retention")
READERS = (Level.FAULT, "Log of the bus", "readers")
LOG = "carillon.bus"


@pytest.fixture
async def log(patient: Patient) -> AsyncIterator[str]:
    """The name of the patient's own log, which is not there yet; the broker is shared."""
    name = f"doctor{secrets.token_hex(4)}.bus"
    patient.environment["CARILLON_BUS_LOG_TOPIC"] = name
    patient.environment["CARILLON_BUS_GROUP"] = name
    patient.environment["CARILLON_BUS_LOG_PARTITIONS"] = "2"
    yield name
    admin = AIOKafkaAdminClient(bootstrap_servers=patient.stack.kafka_servers)
    await admin.start()
    await admin.delete_topics([name])
    await admin.close()


@pytest.mark.native
async def test_a_log_that_is_missing_too_small_or_forgets_too_early(patient: Patient, log: str) -> None:
    [ill] = await patient.heal(TOPIC)
    assert ill.sentence.startswith(f"the topic {log} is missing")
    patient.environment["CARILLON_BUS_LOG_PARTITIONS"] = "3"
    [ill] = await patient.heal(TOPIC)
    assert "has 2 partitions, and bus.log_partitions says 3" in ill.sentence
    patient.environment["CARILLON_BUS_LOG_DAYS"] = "8"
    [ill] = await patient.heal(RETENTION)
    assert "keeps events for 7 days, and bus.log_days says 8" in ill.sentence


@pytest.mark.slow
@pytest.mark.native
async def test_a_log_that_nobody_reads(patient: Patient, log: str) -> None:
    await patient.heal(TOPIC)
    await add(patient.store, "orders", "orders")
    await patient.parts.capabilities.stream.publish(log, [b"{}", b"{}"], keys=[b"a", b"a"])
    [ill] = await patient.these_ills(READERS)
    assert ill.sentence == f"no fan-out is in the group {log}, 2 records are unread"
    assert ill.remedy == "carillon fanout"
    environment = {**patient.environment, "PATH": patient.shell.path, "CARILLON_HEALTH_PORT": "0"}
    fan_out = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services", "fanout", env=environment, stderr=asyncio.subprocess.DEVNULL
    )

    async def is_read() -> bool:
        return not [ill for ill in await patient.ills() if ill.of == "Log of the bus"]

    try:
        await until(is_read, "a fan-out to read the log", 60)
    finally:
        fan_out.terminate()
        await asyncio.wait_for(fan_out.wait(), 50)


@pytest.fixture
async def orders(patient: Patient) -> EventSubscription:
    """A subscription; its log has no reader, which is another test's."""
    return await add(patient.store, "orders", "orders")


async def find_of_bus(patient: Patient) -> list[Finding]:
    return [ill for ill in await patient.ills() if ill.of == "Bus"]


async def see_one(patient: Patient, level: Level, check: str, remedy: str) -> str:
    """The only ill of the bus must be this; its sentence."""
    [ill] = await find_of_bus(patient)
    assert (ill.level, ill.check, ill.remedy) == (level, check, remedy)
    return ill.sentence


async def be_well(patient: Patient) -> None:
    async def is_well() -> bool:
        return not await find_of_bus(patient)

    await until(is_well, "the bus to be well", 30)


async def set_wake_up(patient: Patient, **fields: Any) -> None:
    changed = await patient.database["occurrences"].update_one({"of.stage": {"$exists": True}}, {"$set": fields})
    assert changed.matched_count == 1


@pytest.mark.native
async def test_queues_that_nobody_wakes_or_hands_over(patient: Patient, orders: EventSubscription) -> None:
    now = await patient.store.now()
    note = {"_id": "f/0", "at": now - timedelta(minutes=2), "wakes": [[orders.queue, now + timedelta(hours=1), 1]]}
    await patient.database["bus_unwoken"].insert_one(note)
    said = await see_one(patient, Level.FAULT, "waking", "carillon scheduler")
    assert said.startswith("no scheduler has woken the queues of 1 flush since ")
    await patient.parts.of(BusPart).unwoken.run_once()  # as a scheduler does
    await be_well(patient)

    await set_wake_up(patient, visible_at=now - timedelta(minutes=2))
    said = await see_one(patient, Level.FAULT, "wake-ups", "carillon scheduler")
    assert said.startswith("no scheduler has handed over 1 queue since ")
    await set_wake_up(patient, visible_at=now + timedelta(minutes=2))  # as the hand-over does
    await be_well(patient)

    await set_wake_up(patient, **{"of.deaths": 3})
    said = await see_one(patient, Level.WARNING, "workers", "carillon subscriptions pause orders --namespace token:n")
    assert "died 3 times in a row with orders of token:n" in said
    await set_wake_up(patient, **{"of.deaths": 0})  # as the worker does that comes back
    await be_well(patient)


@pytest.mark.native
async def test_a_receiver_that_fails_until_its_subscription_is_suspended(
    patient: Patient, orders: EventSubscription
) -> None:
    now = await patient.store.now()
    failing = {"$set": {"health.failing_since": now - timedelta(hours=2), "health.failures": 9}}
    await patient.database["bus_cursors"].update_one({"_id": orders.queue}, failing)
    said = await see_one(patient, Level.WARNING, "receivers", "carillon subscriptions show orders --namespace token:n")
    assert said.startswith("orders of token:n fails since ")

    await change(patient.store, orders, now=now, state=SubscriptionStatus.SUSPENDED, reason="failing for 5 days")
    said = await see_one(
        patient, Level.WARNING, "suspended", "carillon subscriptions resume orders --namespace token:n"
    )
    assert said.endswith("and collects nothing: failing for 5 days")
    await patient.parts.of(BusPart).subscribing.resume("token:n", "orders")  # the route behind this command
    await be_well(patient)


def test_secrets_that_no_key_opens() -> None:
    keys, empty = KeyRing([fresh_key()]), made("orders")
    sealed = made("orders", secrets=(seal_secret(keys, empty.id)[0],))
    assert [opinion.level for opinion in judge_secrets([sealed], keys, NOON)] == [Level.OK]
    [opinion] = judge_secrets([sealed], KeyRing([fresh_key()]), NOON)
    assert opinion.remedy == "carillon subscriptions secret orders --namespace token:n"
    [opinion] = judge_secrets([sealed], KeyRing(), NOON)
    assert opinion.remedy.startswith("export CARILLON_PROVIDERS_SECRET_KEYS=")


def test_of_many_that_are_suspended_ten_are_named() -> None:
    opinions = judge_suspended([made(f"k{number}") for number in range(12)])
    assert [opinion.remedy != "" for opinion in opinions] == [True] * 10 + [False]
    assert opinions[-1].sentence == "2 more like these"


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        (TopicFacts(LOG, 16, 1, 0, {}), Level.OK),
        (TopicFacts(LOG, 16, 1, 1, {}), Level.FAULT),
        (TopicFacts(LOG, 17, 1, 0, {}), Level.WARNING),
    ],
)
def test_partitions(facts: TopicFacts, level: Level) -> None:
    assert [opinion.level for opinion in judge_topic(facts, BusSettings())] == [level]


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({"retention.ms": "-1", "cleanup.policy": "delete"}, Level.OK),
        ({"retention.ms": "-1", "cleanup.policy": "compact"}, Level.FAULT),
        ({"retention.ms": "-1", "retention.bytes": "9"}, Level.FAULT),
        ({}, Level.WARNING),
    ],
)
def test_what_kafka_keeps(settings: dict[str, str | None], level: Level) -> None:
    assert [each.level for each in judge_retention(TopicFacts(LOG, 16, 1, 0, settings), BusSettings(), "k")] == [level]


def read_to(offset: int, *, end: int = 10, begin: int = 0, log: str = "a", members: int = 1) -> LogReading:
    at = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp()) * 1_000
    stands = LogPosition(Position(offset, log), order=at, flush="f")
    return LogReading({f"{LOG}/0": (begin, end)}, {f"{LOG}/0": stands}, members)


@pytest.mark.parametrize(
    ("reading", "before", "level"),
    [
        (read_to(10), 10, Level.OK),
        (read_to(7), 5, Level.OK),
        (read_to(5), 5, Level.WARNING),
        (read_to(5, members=0), 5, Level.FAULT),
        (read_to(10, members=0), 10, Level.WARNING),
    ],
)
def test_readers(reading: LogReading, before: int, level: Level) -> None:
    [opinion] = judge_readers(reading, read_to(before), "g")
    assert opinion.level is level
    if reading.unread and level is not Level.OK:
        assert "5 records" in opinion.sentence
        assert "(the last was read at 2030-01-01 00:00:00 UTC)" in opinion.sentence


@pytest.mark.parametrize(
    ("reading", "level", "said"),
    [
        (read_to(10), Level.OK, "within this log"),
        (read_to(10, log="b"), Level.FAULT, "1 partitions are of another log"),
        (read_to(10, log="b", end=0), Level.OK, "within this log"),
        (read_to(10, end=9), Level.WARNING, "1 partitions end before what was read"),
        (read_to(3, begin=5), Level.FAULT, "has deleted 2 unread records"),
    ],
)
def test_positions(reading: LogReading, level: Level, said: str) -> None:
    [opinion] = judge_positions(reading, "a")
    assert opinion.level is level
    assert said in opinion.sentence
