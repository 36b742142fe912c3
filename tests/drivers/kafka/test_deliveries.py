"""Users' messages on a real Kafka: what a consumer sees, and an outcome for each that is its own."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import ConsumerRecord

from shared.clock.rules.callbacks import DeliveryError, TopicMessage, Undeliverable
from shared.core.errors import Unavailable
from shared.drivers.kafka.servers import KafkaServers
from shared.drivers.kafka.stream import KafkaStream
from shared.runtime.server_settings import StreamSettings
from tests import stack as native
from tests.drivers.kafka.test_kafka import small_topic
from tests.stack import Endpoints
from tests.waiting import until

__all__ = ["small_topic"]  # a fixture
pytestmark = pytest.mark.native

PARTITIONS = 7
# What the Java client's own tests expect of its murmur2.
JAVA_MURMUR2 = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.fixture
async def kafka(stack: Endpoints) -> AsyncIterator[KafkaStream]:
    stream = KafkaStream(KafkaServers(stack.kafka_servers), StreamSettings(request_timeout_seconds=15))
    yield stream
    await stream.close()


@pytest.fixture
async def admin(stack: Endpoints) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=stack.kafka_servers)
    await client.start()
    yield client
    await client.close()


@pytest.fixture
async def topic(admin: AIOKafkaAdminClient) -> str:
    return await made(admin, f"orders-{secrets.token_hex(4)}", PARTITIONS)


async def made(admin: AIOKafkaAdminClient, name: str, partitions: int = 1) -> str:
    """A topic that the broker not only promises, but knows."""
    await admin.create_topics([NewTopic(name, partitions, 1)])

    async def is_known() -> bool:
        return name in await admin.list_topics()

    await until(is_known, "the new topic")
    return name


def a_message(topic: str, number: int = 0, *, key: str | None = None, body: bytes | None = None) -> TopicMessage:
    return TopicMessage(topic, key, b"%d" % number if body is None else body, {})


def kinds(outcomes: Sequence[DeliveryError | None]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


async def records_in(stack: Endpoints, topic: str) -> list[ConsumerRecord]:
    """All that is in the topic now."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=stack.kafka_servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        count: int = sum((await consumer.end_offsets(consumer.assignment())).values())
        found: list[ConsumerRecord] = []

        async def are_all_found() -> bool:
            for some in (await consumer.getmany(timeout_ms=200)).values():
                found.extend(some)
            return len(found) >= count

        await until(are_all_found, "all records of the topic")
        return found
    finally:
        await consumer.stop()


async def bodies_in(stack: Endpoints, topic: str) -> list[int]:
    return sorted(int(record.value) for record in await records_in(stack, topic))


async def test_a_consumer_sees_what_was_sent(kafka: KafkaStream, stack: Endpoints, topic: str) -> None:
    messages = [
        TopicMessage(topic, "Grüße", b"\x00\xff", {"carillon-key": "42/ä", "carillon-attempt": "1"}),
        TopicMessage(topic, None, b"", {}),
        TopicMessage(topic, "", b"empty key", {}),
    ]
    assert await kafka.deliver(messages) == [None] * 3
    seen = {(record.key, record.value, tuple(record.headers)) for record in await records_in(stack, topic)}
    assert seen == {
        ("Grüße".encode(), b"\x00\xff", (("carillon-key", "42/ä".encode()), ("carillon-attempt", b"1"))),
        (None, b"", ()),
        (b"", b"empty key", ()),
    }


async def test_a_key_has_the_partition_that_java_gives_it(kafka: KafkaStream, stack: Endpoints, topic: str) -> None:
    messages = [a_message(topic, key=key) for key in JAVA_MURMUR2]
    assert await kafka.deliver(messages) == [None] * len(messages)
    seen = {record.key.decode(): record.partition for record in await records_in(stack, topic)}
    assert seen == {key: (value & 0x7FFFFFFF) % PARTITIONS for key, value in JAVA_MURMUR2.items()}


async def test_without_keys_all_partitions_are_used(kafka: KafkaStream, stack: Endpoints, topic: str) -> None:
    await kafka.deliver([a_message(topic, number) for number in range(500)])
    assert {record.partition for record in await records_in(stack, topic)} == set(range(PARTITIONS))


async def test_nothing_to_deliver(kafka: KafkaStream) -> None:
    assert await kafka.deliver([]) == []


async def test_many_groups_at_once_arrive_once_each(kafka: KafkaStream, stack: Endpoints, topic: str) -> None:
    groups = [[a_message(topic, number) for number in range(start, start + 500)] for start in range(0, 10_000, 500)]
    assert await asyncio.gather(*(kafka.deliver(group) for group in groups)) == [[None] * 500] * 20
    assert await bodies_in(stack, topic) == list(range(10_000))


async def test_a_missing_topic_is_told_at_once_and_not_made(
    kafka: KafkaStream, stack: Endpoints, topic: str, admin: AIOKafkaAdminClient
) -> None:
    missing = f"missing-{secrets.token_hex(4)}"
    assert await kafka.deliver([a_message(topic, 0)]) == [None]
    started = perf_counter()
    for _ in range(3):
        outcomes = await kafka.deliver([a_message(topic, 1), a_message(missing), a_message(topic, 2)])
        assert kinds(outcomes) == [type(None), Undeliverable, type(None)]
        assert missing in str(outcomes[1])
    assert perf_counter() - started < 40, "no delivery waits for the 15 s that a request may take"
    assert missing not in await admin.list_topics()
    await made(admin, missing)
    assert await kafka.deliver([a_message(missing)]) == [None]


async def test_a_topic_that_is_deleted_while_in_use(
    kafka: KafkaStream, stack: Endpoints, topic: str, admin: AIOKafkaAdminClient
) -> None:
    gone = await made(admin, f"gone-{secrets.token_hex(4)}")
    assert await kafka.deliver([a_message(gone), a_message(topic)]) == [None, None]
    await admin.delete_topics([gone])

    async def is_gone() -> bool:
        return gone not in await admin.list_topics()

    await until(is_gone, "the end of the topic")
    kafka._deliverer._topics.forget([gone])  # as half a minute does
    used = kafka._deliverer._together._current
    assert kinds(await kafka.deliver([a_message(gone), a_message(topic)])) == [Undeliverable, type(None)]
    assert kafka._deliverer._together._current is not used, "it would ask for the topic again, which makes it"
    assert gone not in await admin.list_topics()


@pytest.mark.parametrize("name", ["", ".", "..", "no/slash", "ä", "x" * 250, "a\x00b", "\ud800"])
async def test_what_is_no_name_of_a_topic(kafka: KafkaStream, stack: Endpoints, topic: str, name: str) -> None:
    outcomes = await kafka.deliver([a_message(name), a_message(topic)])
    assert kinds(outcomes) == [Undeliverable, type(None)]


async def test_text_that_cannot_be_encoded(kafka: KafkaStream, topic: str) -> None:
    messages = [
        a_message(topic, key="\ud800"),
        TopicMessage(topic, None, b"", {"\ud800": ""}),
        TopicMessage(topic, None, b"", {"a": "\ud800"}),
        a_message(topic),
    ]
    assert kinds(await kafka.deliver(messages)) == [Undeliverable] * 3 + [type(None)]


async def test_too_large_for_us(kafka: KafkaStream, stack: Endpoints, topic: str) -> None:
    outcomes = await kafka.deliver([a_message(topic, 1), a_message(topic, body=b"x" * 1_000_001), a_message(topic, 2)])
    assert kinds(outcomes) == [type(None), Undeliverable, type(None)]
    assert await bodies_in(stack, topic) == [1, 2]


async def test_too_large_for_the_topic_does_not_spoil_the_others(
    kafka: KafkaStream, stack: Endpoints, small_topic: str
) -> None:
    async def deliver(start: int) -> None:
        numbers = range(start, start + 100)
        messages = [a_message(small_topic, number) for number in numbers]
        messages[50] = a_message(small_topic, body=b"x" * 400_000)
        assert kinds(await kafka.deliver(messages)) == [
            Undeliverable if place == 50 else type(None) for place in range(100)
        ]

    assert await kafka.deliver([a_message(small_topic, 1_000)]) == [None]
    used = kafka._deliverer._together._current
    await deliver(0)
    assert kafka._deliverer._together._current is not used, "the broker would refuse what it sends"
    await asyncio.gather(*(deliver(start) for start in range(100, 1_000, 100)))
    assert await kafka.deliver([a_message(small_topic, 50)]) == [None]
    arrived = await bodies_in(stack, small_topic)
    assert arrived == [number for number in range(1_001) if number % 100 != 50 or number == 50]


@contextmanager
def frozen_kafka() -> Iterator[None]:
    native.pause("kafka")
    try:
        yield
    finally:
        native.unpause("kafka")


@pytest.mark.alone
@pytest.mark.kills_servers
async def test_a_frozen_kafka_is_given_up_at_the_deadline_and_for_good(stack: Endpoints, topic: str) -> None:
    stream = KafkaStream(KafkaServers(stack.kafka_servers), StreamSettings(request_timeout_seconds=1))
    assert await stream.deliver([a_message(topic, number) for number in range(100)]) == [None] * 100
    with frozen_kafka():
        started = perf_counter()
        many = [stream.deliver([a_message(topic, 1), a_message("unheard-of"), a_message("..")]) for _ in range(5)]
        for outcomes in await asyncio.gather(*many, stream.deliver([a_message(topic, 2)] * 3)):
            assert set(kinds(outcomes)) <= {Unavailable, Undeliverable} and type(outcomes[0]) is Unavailable
        assert perf_counter() - started < 20
        async with asyncio.timeout(50):
            await asyncio.gather(*stream._deliverer._together._ending)
        assert not [task for task in asyncio.all_tasks() if "_sender_routine" in repr(task.get_coro())]

    async def is_back() -> bool:
        return await stream.deliver([a_message(topic, 3)]) == [None]

    await until(is_back, "Kafka to be back")
    await asyncio.wait_for(stream.close(), 50)


async def test_no_kafka_at_all() -> None:
    stream = KafkaStream(KafkaServers("127.0.0.1:1"), StreamSettings(request_timeout_seconds=1))
    assert kinds(await stream.deliver([a_message("t"), a_message("t")])) == [Unavailable, Unavailable]
    await stream.close()
