"""What only a real broker can do to a transaction."""

import asyncio
import re
import secrets

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from msgspec.structs import replace
from structlog.testing import capture_logs

from shared.core.errors import LaneLost, Unavailable
from shared.drivers.kafka import Aborted
from shared.drivers.kafka.servers import KafkaServers
from shared.drivers.kafka.stream import KafkaStream
from shared.runtime import faults
from shared.runtime.server_settings import StreamSettings
from tests.drivers.kafka.test_contract import PART, a_batch, committed, records
from tests.samples import sample
from tests.stack import Endpoints
from tests.waiting import until

pytestmark = pytest.mark.native


@pytest.fixture
async def kafka(stack: Endpoints, request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """A parameter is the seconds of a request."""
    seconds = getattr(request, "param", 30)
    settings = StreamSettings(transaction_timeout_seconds=seconds + 1, request_timeout_seconds=seconds)
    stream = KafkaStream(KafkaServers(stack.kafka_servers), settings)
    await stream.setup({})
    yield stream
    await stream.close()
    faults.arm("")


@pytest.fixture
async def small_topic(stack: Endpoints) -> str:
    """A topic that takes no produce batch over 300,000 bytes."""
    name = f"push-s{secrets.token_hex(4)}_apns-massive"
    admin = AIOKafkaAdminClient(bootstrap_servers=stack.kafka_servers)
    await admin.start()
    await admin.create_topics([NewTopic(name, 4, 1, topic_configs={"max.message.bytes": "300000"})])

    async def is_known() -> bool:
        return name in await admin.list_topics()

    await until(is_known, "the new topic")
    await admin.close()
    return name


async def test_one_refused_record_takes_its_whole_batch_back(kafka: KafkaStream, small_topic: str) -> None:
    batch = a_batch()
    async with kafka.lane() as lane:
        with pytest.raises(Aborted, match="1 produce batches failed") as refused:
            await lane.produce(batch, small_topic, [*records(5_000), b"x" * 980_000], PART)
        owned = replace(batch, owner=lane.id)
    assert refused.value.final
    assert await kafka.recover(owned) is None
    async with kafka.lane() as lane:
        await lane.produce(batch, small_topic, records(), PART)
    assert sorted(await committed(kafka, small_topic, 3)) == records()


async def test_lanes_are_counted_by_what_they_do(kafka: KafkaStream, small_topic: str) -> None:
    def lanes() -> tuple[float, float]:
        return sample("lanes", state="sending"), sample("lanes", state="idle")

    assert lanes() == (0, 0)
    async with kafka.lane() as lane:
        assert lanes() == (1, 0)
        async with kafka.lane():
            assert lanes() == (2, 0)
        assert lanes() == (1, 1)
    assert lanes() == (0, 2)
    await kafka.recover(replace(a_batch(), owner=lane.id))
    assert lanes() == (0, 1)


@pytest.mark.parametrize(
    ("kafka", "answer"), [(30, "raise"), pytest.param(5, "hang", marks=pytest.mark.slow)], indirect=["kafka"]
)
async def test_a_commit_whose_reply_never_comes_is_recovered_as_sent(
    kafka: KafkaStream, small_topic: str, answer: str
) -> None:
    faults.arm(f"stream.commit_reply={answer}")
    batch = a_batch()
    async with kafka.lane() as lane:
        with pytest.raises(LaneLost):
            await lane.produce(batch, small_topic, records(), PART)
        owned = replace(batch, owner=lane.id)
    assert await kafka.recover(owned) == PART
    async with kafka.lane() as fresh:
        assert fresh.id != owned.owner


async def test_a_marker_that_cannot_be_read_is_no_answer(kafka: KafkaStream, small_topic: str) -> None:
    batch = a_batch()
    async with kafka.lane() as lane:
        await lane.produce(batch, small_topic, records(), PART)
        owned = replace(batch, owner=lane.id)
    faults.arm("stream.marker_read=raise")
    with pytest.raises(Unavailable):
        await kafka.recover(owned)
    assert await kafka.recover(owned) == PART


async def test_a_marker_beyond_the_batch_is_no_answer(kafka: KafkaStream, small_topic: str) -> None:
    earlier = a_batch(0)
    later = a_batch(32, earlier.job_id)
    async with kafka.lane() as lane:
        await lane.produce(later, small_topic, records(), PART)
        with pytest.raises(Unavailable, match="beyond"):
            await kafka.recover(replace(earlier, owner=lane.id))


async def test_a_cluster_without_its_ledger_is_not_used(stack: Endpoints) -> None:
    stream = KafkaStream(
        KafkaServers(stack.kafka_servers), StreamSettings(ledger_topic=f"ledger-{secrets.token_hex(4)}")
    )
    with pytest.raises(Unavailable, match="carillon init"):
        await stream.verify()
    await stream.setup({})
    await stream.verify()
    await stream.close()


async def test_a_real_broker_tells_how_long_it_keeps_markers(stack: Endpoints) -> None:
    stream = KafkaStream(KafkaServers(stack.kafka_servers), StreamSettings(marker_retention_days=7.5))
    await stream.setup({})
    with pytest.raises(Unavailable, match=r"10080 minutes \(offsets.retention.minutes\)"):
        await stream.verify()
    await stream.close()


async def test_topics_of_a_real_broker_are_looked_at(
    stack: Endpoints, small_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a single copy is many."""
    monkeypatch.setattr("shared.drivers.kafka.cluster.MANY_COPIES", 1)
    stream = KafkaStream(KafkaServers(stack.kafka_servers), push_topics=re.escape(small_topic))
    await stream.setup({})

    async def looked_at() -> bool:
        with capture_logs() as logs:
            await stream.verify()
        return {small_topic, "carillon.ledger"} <= {entry["topic"] for entry in logs}

    await until(looked_at, "the new topic to be known to the broker")
    await stream.close()


async def test_a_cluster_that_is_away_is_unavailable_and_nothing_hangs() -> None:
    stream = KafkaStream(KafkaServers("127.0.0.1:1"), StreamSettings(request_timeout_seconds=1))
    with pytest.raises(Unavailable):
        await stream.ping()
    with pytest.raises(Unavailable):
        async with stream.lane():
            pass
    with pytest.raises(Unavailable):
        await stream.publish("t", [b"x"])
    with pytest.raises(Unavailable):
        await stream.recover(replace(a_batch(), owner="somebody"))
    await stream.close()


async def test_many_who_try_a_transaction_at_once(kafka: KafkaStream) -> None:
    trying = (kafka.inspection.try_transaction(40) for _ in range(8))
    await asyncio.gather(*trying)


async def test_a_transaction_that_the_broker_refuses(kafka: KafkaStream) -> None:
    # Longer than the broker's transaction.max.timeout.ms, 15 minutes.
    with pytest.raises(Unavailable, match=r"Invalid(Txn|Transaction)Timeout"):
        await kafka.inspection.try_transaction(1_000)
