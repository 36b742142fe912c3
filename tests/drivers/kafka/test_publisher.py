"""Keys and their partitions, and what a producer does when its connections break."""

import asyncio
import re
import secrets
from datetime import timedelta

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.cluster import ClusterMetadata
from aiokafka.partitioner import DefaultPartitioner, murmur2
from aiokafka.structs import ConsumerRecord, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Unavailable
from shared.drivers.kafka import LateRecords, TopicSpec
from shared.drivers.kafka.publisher import partitions_of
from shared.drivers.kafka.servers import KafkaServers
from shared.drivers.kafka.stream import KafkaStream
from shared.runtime.server_settings import StreamSettings
from tests.drivers.kafka.test_contract import placed
from tests.stack import Endpoints
from tests.waiting import until

# Those of Kafka's own test of its Java client, as signed numbers of 32 bits.
OF_JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_hashes_are_those_of_kafkas_java_client() -> None:
    assert {key: murmur2(key) - (1 << 32 if murmur2(key) >> 31 else 0) for key in OF_JAVA} == OF_JAVA
    keys = [*OF_JAVA, *OF_JAVA]
    assert partitions_of(keys, 1_000_003) == [(hash & 0x7FFFFFFF) % 1_000_003 for hash in OF_JAVA.values()] * 2


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 256))
def test_many_keys_go_where_the_drivers_partitioner_puts_each(keys: list[bytes], count: int) -> None:
    chosen = [DefaultPartitioner()(key, list(range(count)), []) for key in keys]
    assert partitions_of(keys, count) == chosen


@pytest.fixture
async def kafka(stack: Endpoints):  # type: ignore[no-untyped-def]
    stream = KafkaStream(
        KafkaServers(stack.kafka_servers), StreamSettings(request_timeout_seconds=40, compression="zstd")
    )
    yield stream
    await stream.close()


@pytest.fixture
async def topic(kafka: KafkaStream) -> str:
    name = f"keyed-{secrets.token_hex(4)}"
    await kafka.setup({name: 7})
    await until(lambda: kafka.spans(name), "the new topic")
    return name


@pytest.mark.native
async def test_records_have_their_keys_and_lie_where_any_producer_puts_them(
    kafka: KafkaStream, topic: str, stack: Endpoints
) -> None:
    keys = [secrets.token_bytes(number) for number in range(60)]
    await kafka.publish(topic, [b"v%d" % number for number in range(60)], keys=keys)
    await kafka.publish(topic, [b"large" * 100_000], keys=[b"large"])
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=stack.kafka_servers, auto_offset_reset="earliest")
    await consumer.start()
    found: list[ConsumerRecord[bytes, bytes]] = []

    async def are_all_found() -> bool:
        found.extend(record for part in (await consumer.getmany(timeout_ms=500)).values() for record in part)
        return len(found) >= 61

    await until(are_all_found, "all records")
    await consumer.stop()
    assert {record.key for record in found} == {*keys, b"large"}
    for record in found:
        assert record.partition == DefaultPartitioner()(record.key, list(range(7)), [])


@pytest.mark.native
async def test_a_key_keeps_its_order_while_connections_break(kafka: KafkaStream, topic: str) -> None:
    """What was under way is sent again by its number: nothing comes twice, and nothing overtakes."""
    broken = 0
    for turn in range(60):
        values = [b"%d" % number for number in range(10 * turn, 10 * turn + 10)]
        publishing = asyncio.create_task(kafka.publish(topic, values, keys=[b"one key"] * 10))
        for _ in range(turn):  # each connection breaks at another point of a publish
            await asyncio.sleep(0)
        shared = kafka._publisher._producers._current
        for connection in [] if shared is None else list(shared.producer.client._conns.values()):
            connection.close()
            broken += 1
        await publishing
    found = await placed(kafka, topic, 600)
    assert [value for _, value in found] == [b"%d" % number for number in range(600)]
    assert broken > 5


@pytest.mark.native
async def test_what_is_given_up_keeps_nobody_from_publishing(kafka: KafkaStream, topic: str) -> None:
    await kafka.publish(topic, [b"first"], keys=[b"k"])
    began = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.0005):
            await kafka.publish(topic, [b"x"] * 50_000, keys=[b"k"] * 50_000)
    assert asyncio.get_running_loop().time() - began < 30
    await kafka.publish(topic, [b"last"], keys=[b"other"])


@pytest.mark.native
async def test_a_partition_without_a_leader_holds_up_no_other_and_keeps_its_order(
    kafka: KafkaStream, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, held, large = _keys_apart(7)
    await kafka.publish(topic, [b"first"] * 2, keys=[held, others])
    cluster = kafka._publisher._producers._current.producer.client.cluster  # type: ignore[union-attr]
    known, away = cluster.leader_for_partition, {partitions_of([held, large], 7)[number] for number in range(2)}
    monkeypatch.setattr(cluster, "leader_for_partition", lambda of: -1 if of.partition in away else known(of))
    late: list[LateRecords] = []
    for number in range(5):
        values, keys = [b"a%d" % number, b"b%d" % number, b"c" * 400_000], [held, others, large]
        # The first one finds out; those behind it do not wait.
        patience = 0.2 if number == 0 else 60
        async with asyncio.timeout(50):
            late += await kafka.append(topic, values, keys, patience_seconds=patience, seconds=60)
    await asyncio.gather(*(records.done for records in late if records.places == [1]))  # on a machine that is busy
    late = [records for records in late if records.places != [1]]
    assert [records.places for records in late] == [[0], [2]] * 5
    assert not any(records.done.done() for records in late)
    [expired] = await kafka.append(topic, [b"expired"], [held], patience_seconds=60, seconds=0)
    with pytest.raises(Unavailable):
        await expired.done
    monkeypatch.undo()
    await asyncio.gather(*(records.done for records in late))
    found = [value for _, value in await placed(kafka, topic, 17)]
    assert [value for value in found if value[:1] == b"a"] == [b"a%d" % number for number in range(5)]
    assert b"expired" not in found


@pytest.mark.native
async def test_a_partition_that_fails_for_good_takes_nobody_along(
    kafka: KafkaStream, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, held, _ = _keys_apart(7)
    await kafka.publish(topic, [b"first"] * 2, keys=[others, held])
    producer = kafka._publisher._producers._current.producer  # type: ignore[union-attr]
    known, [away] = producer.client.cluster.leader_for_partition, partitions_of([held], 7)
    cluster = producer.client.cluster
    monkeypatch.setattr(cluster, "leader_for_partition", lambda of: -1 if of.partition == away else known(of))
    monkeypatch.setattr(producer._message_accumulator, "_batch_ttl", 2.0)
    [late] = await kafka.append(topic, [b"1", b"2"], [held, others], patience_seconds=60, seconds=60)
    assert late.places == [0]
    with pytest.raises(Unavailable, match="LeaderNotAvailable"):
        await late.done
    assert list(await kafka.append(topic, [b"3", b"4"], [held, others], patience_seconds=60, seconds=60)) == []


@pytest.mark.slow
@pytest.mark.native
async def test_a_partition_without_a_leader_holds_up_no_other_while_a_producer_is_opened(
    kafka: KafkaStream, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, held, _ = _keys_apart(7)
    known, [away] = ClusterMetadata.leader_for_partition, partitions_of([held], 7)

    def hide_leader(cluster: ClusterMetadata, of: TopicPartition) -> int | None:
        leader: int | None = known(cluster, of)
        return -1 if (of.topic, of.partition) == (topic, away) else leader

    monkeypatch.setattr(ClusterMetadata, "leader_for_partition", hide_leader)
    [late] = await kafka.append(topic, [b"1", b"2"], [held, others], patience_seconds=5, seconds=60)
    assert late.places == [0]
    monkeypatch.undo()
    await late.done


@pytest.mark.native
async def test_what_waited_too_long_for_a_producer_is_not_appended_any_more(
    kafka: KafkaStream, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_start, _ = hold_back_producers(monkeypatch)
    [late] = await kafka.append(topic, [b"too late"], [b"k"], patience_seconds=0, seconds=0.1)
    async with asyncio.timeout(50):
        with pytest.raises(Unavailable):
            await late.done
    [later] = await kafka.append(topic, [b"in time"], [b"k"], patience_seconds=0, seconds=60)
    may_start.set()
    await later.done
    assert [value for _, value in await placed(kafka, topic, 1)] == [b"in time"]


@pytest.mark.native
async def test_nothing_overtakes_what_waits_for_a_producer(
    kafka: KafkaStream, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_start, has_started = hold_back_producers(monkeypatch)
    late = [*await kafka.append(topic, [b"0"], [b"k"], patience_seconds=0, seconds=60)]
    may_start.set()
    async with asyncio.timeout(50):
        await has_started.wait()
    for value in (b"1", b"2"):
        late += await kafka.append(topic, [value], [b"k"], patience_seconds=0, seconds=60)
    await asyncio.gather(*(records.done for records in late))
    assert [value for _, value in await placed(kafka, topic, 3)] == [b"0", b"1", b"2"]


def hold_back_producers(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """No producer starts before the first event, and the second says that one has."""
    may_start, has_started, start = asyncio.Event(), asyncio.Event(), AIOKafkaProducer.start

    async def start_late(producer: AIOKafkaProducer) -> None:
        await may_start.wait()
        await start(producer)
        has_started.set()

    monkeypatch.setattr(AIOKafkaProducer, "start", start_late)
    return may_start, has_started


def _keys_apart(partitions: int) -> list[bytes]:
    """A key for each of three partitions."""
    keys = [b"%d" % number for number in range(100)]
    by_partition = dict(zip(partitions_of(keys, partitions), keys, strict=True))
    return list(by_partition.values())[:3]


@pytest.mark.native
@pytest.mark.parametrize(
    ("partitions", "configs", "says"),
    [
        (2, {}, "has 2 partitions of 3: run `carillon init`"),
        (3, {"retention.ms": "3600000"}, r"keeps its records for 1:00:00 \(retention.ms\), our settings say 1 day"),
        (3, {"retention.bytes": "1048576"}, "forgets what is beyond its retention.bytes: set that to -1"),
        (3, {"cleanup.policy": "compact"}, "forgets records with the same key: set its cleanup.policy to delete"),
    ],
)
async def test_a_topic_that_does_not_keep_what_it_should_is_not_used(
    kafka: KafkaStream, stack: Endpoints, partitions: int, configs: dict[str, str], says: str
) -> None:
    name = f"kept-{secrets.token_hex(4)}"
    await kafka.setup({})
    admin = AIOKafkaAdminClient(bootstrap_servers=stack.kafka_servers)
    await admin.start()
    await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)])
    await admin.close()
    wanted = {name: TopicSpec(3, timedelta(days=1))}

    async def is_refused() -> bool:
        try:
            await kafka.verify(wanted)
        except Unavailable as error:
            return re.search(says, str(error)) is not None
        return False

    # Whoever has made it (`carillon init` too) leaves it as it is.
    await kafka.setup(wanted)
    await until(is_refused, "the topic to be refused")


@pytest.mark.native
@pytest.mark.parametrize("milliseconds", ["-1", "86400000"])
async def test_a_topic_that_keeps_its_records_for_longer_is_used(
    kafka: KafkaStream, stack: Endpoints, milliseconds: str
) -> None:
    name = f"kept-{secrets.token_hex(4)}"
    await kafka.setup({})
    admin = AIOKafkaAdminClient(bootstrap_servers=stack.kafka_servers)
    await admin.start()
    await admin.create_topics([NewTopic(name, 4, 1, topic_configs={"retention.ms": milliseconds})])
    await admin.close()

    async def is_used() -> bool:
        try:
            await kafka.verify({name: TopicSpec(3, timedelta(days=1))})
        except Unavailable:  # the broker does not know the new topic yet
            return False
        return True

    await until(is_used, "the topic to be used")
