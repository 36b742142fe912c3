"""Records as Kafka has them, with their keys and headers, are as they were recorded."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord

from shared.audience.rules.audiences import KeyRange
from shared.clock.rules.callbacks import TopicMessage
from shared.drivers.kafka.servers import KafkaServers
from shared.drivers.kafka.stream import KafkaStream
from shared.jobs.rules.batches import Batch, BatchPart, BatchStatus, Receipt
from shared.runtime.server_settings import StreamSettings
from tests.drivers.kafka.test_deliveries import admin, topic
from tests.recorded.recorder import Placeholders, check, show
from tests.stack import Endpoints

pytestmark = pytest.mark.recorded

__all__ = ["admin", "topic"]
RECORD = b'{"DeviceToken":"t1","Payload":{"aps":{"alert":"Hi"}},"push_expiry":0}'


@pytest.fixture
async def kafka(stack: Endpoints) -> AsyncIterator[KafkaStream]:
    stream = KafkaStream(KafkaServers(stack.kafka_servers), StreamSettings(request_timeout_seconds=30))
    yield stream
    await stream.close()


async def test_records_of_kafka(kafka: KafkaStream, stack: Endpoints, topic: str) -> None:
    """One of a push, one of a schedule, and one that is published with a key."""
    await kafka.setup({topic: 7})
    batch = Batch(job_id="job", ordinal=0, range=KeyRange(0, 9), size=1, status=BatchStatus.SENDING, attempts=1)
    async with kafka.lane() as lane:
        await lane.produce(batch, topic, [RECORD], BatchPart(Receipt(sent=1)))
    assert await kafka.deliver([TopicMessage(topic, "key", b"called", {"carillon-key": "42"})]) == [None]
    await kafka.publish(topic, [b"event"], keys=[b"order"])
    async with AIOKafkaConsumer(topic, bootstrap_servers=stack.kafka_servers, auto_offset_reset="earliest") as consumer:
        lines = sorted([_text(await asyncio.wait_for(consumer.getone(), 50)) for _ in range(3)])
    check({"sent/kafka/records.txt": Placeholders({}).apply("\n".join(lines) + "\n")}, "sent/kafka")


def _text(record: ConsumerRecord) -> str:
    headers = [(name, value.decode()) for name, value in record.headers]
    return f"key={record.key!r} headers={show(headers, None)} value={record.value!r}"
