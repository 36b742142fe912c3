"""The listener on the real store and on real streams, in this process: where folds begin, end and are given up."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import TopicPartition
from structlog.testing import capture_logs
from structlog.typing import EventDict

from services.feedback.listener import Listener
from shared.audience.rules.audiences import KeyRange
from shared.core.documents import Position
from shared.core.errors import Unavailable
from shared.drivers.kafka import Stream
from shared.drivers.kafka.local import LocalStream
from shared.drivers.kafka.reading import Chunk
from shared.drivers.kafka.servers import KafkaServers
from shared.drivers.kafka.stream import KafkaStream
from shared.drivers.kafka.topics import topic_ids
from shared.jobs.rules.batches import Batch, BatchPart, Receipt
from shared.push.rules.feedback import MAX_KEYS
from shared.runtime.metrics import FEEDBACK_RECORDS
from shared.runtime.settings import FeedbackSettings
from shared.store import Store
from tests.drivers.rabbitmq.proxy import SilencableProxy
from tests.jobs.made import added
from tests.samples import sample
from tests.stack import Endpoints
from tests.stack.mongodb import through_port
from tests.tiers import and_rarely
from tests.waiting import until

NO_READER: Any = None
NEVER = 86_400.0
OFTEN = 0.1


@pytest.fixture
async def kafka(stack: Endpoints) -> AsyncIterator[Stream]:
    opened = KafkaStream(KafkaServers(stack.kafka_servers))
    await opened.setup({})
    yield opened
    await opened.close()


@pytest.fixture
async def stream(either_stream: Stream) -> Stream:
    await either_stream.setup({})
    return either_stream


@pytest.fixture
async def job(store: Store) -> str:
    return await added(store)


@pytest.fixture
async def topic() -> str:
    return f"t{secrets.token_hex(5)}-feedbacks"


@pytest.fixture
async def admin(stack: Endpoints) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=stack.kafka_servers)
    await client.start()
    yield client
    await client.close()


def answers(job: str, count: int) -> list[bytes]:
    return [json.dumps({"Err": None, "metadata": {"jobId": job}}).encode()] * count


@asynccontextmanager
async def listening(stream: Stream, store: Store, topic: str, *, flush_seconds: float) -> AsyncIterator[Listener]:
    settings = FeedbackSettings(topics=f"^{topic}$", group=topic, flush_seconds=flush_seconds)
    listener = Listener(stream, store, settings)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()
        assert listener._task is not None
        listener._task.result()


def acks(store: Store, job: str, expected: int) -> Callable[[], Any]:
    async def counted() -> bool:
        found = await store.jobs.get(job)
        assert found is not None
        acks = found.feedbacks.get("ack", 0)
        assert acks <= expected, f"{acks} of {expected}"
        return acks == expected

    return counted


async def offset(store: Store, partition: str) -> int:
    return (await store.feedbacks.positions([partition])).get(partition, Position()).offset


def folded(listener: Listener, records: int) -> Callable[[], bool]:
    return lambda: sum(fold.counted for fold in listener._folds.values()) == records


async def test_what_is_folded_is_stored_when_it_stops(stream: Stream, store: Store, topic: str, job: str) -> None:
    await stream.setup({topic: 2})
    await stream.publish(topic, answers(job, 300))
    async with listening(stream, store, topic, flush_seconds=NEVER) as listener:
        await until(folded(listener, 300), "300 folded")
        assert await acks(store, job, 0)()
    assert await acks(store, job, 300)()


async def test_counts_show_after_the_interval_and_go_on_where_they_stood(
    stream: Stream, store: Store, topic: str, job: str
) -> None:
    await stream.setup({topic: 2})
    for total in (100, 200):
        async with listening(stream, store, topic, flush_seconds=OFTEN):
            await stream.publish(topic, answers(job, 100))
            await until(acks(store, job, total), f"{total} counted")


async def test_it_tells_what_is_not_stored_yet_and_since_when(
    stream: Stream, store: Store, topic: str, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stream.setup({topic: 2})
    flush, away = store.feedbacks.flush, asyncio.Event()

    async def fail_while_away(*given: Any, **named: Any) -> bool:
        if away.is_set():
            raise Unavailable("MongoDB is away")
        return await flush(*given, **named)

    monkeypatch.setattr(store.feedbacks, "flush", fail_while_away)
    async with listening(stream, store, topic, flush_seconds=OFTEN) as listener:
        await stream.publish(topic, answers(job, 100))
        await until(acks(store, job, 100), "100 counted")
        await until(lambda: sample("feedback_lag_records") == 0, "no lag")
        away.set()
        await stream.publish(topic, answers(job, 50))
        await until(folded(listener, 50), "50 folded")
        await until(lambda: sample("feedback_flush_age_seconds") > 3 * OFTEN, "the age to grow")
        away.clear()
        await until(acks(store, job, 150), "150 counted")
        await until(lambda: sample("feedback_flush_age_seconds") < 3 * OFTEN, "the age to fall")


async def test_records_that_are_read_and_not_stored_are_its_lag(
    stream: Stream, store: Store, topic: str, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are those that it has only heard of; here it stores nothing, as if another process were always faster."""
    await stream.setup({topic: 1})

    async def store_nothing(*given: Any, **named: Any) -> bool:
        return True

    async with listening(stream, store, topic, flush_seconds=OFTEN) as listener:
        await stream.publish(topic, answers(job, 40))
        await until(acks(store, job, 40), "40 counted")
        monkeypatch.setattr(listener, "_flush", store_nothing)
        await stream.publish(topic, answers(job, 60))
        await until(lambda: sample("feedback_lag_records") == 60, "a lag of 60")
        monkeypatch.undo()
        await until(lambda: sample("feedback_lag_records") == 0, "no lag")


async def test_a_fold_without_counts_moves_the_position_and_is_counted_as_skipped(
    stream: Stream, store: Store, topic: str
) -> None:
    before = skipped()
    await stream.setup({topic: 1})
    await stream.publish(topic, [b"not JSON", b"{}", b"{}", b'{"metadata":{"jobId":7}}'])

    async def moved() -> bool:
        return await offset(store, f"{topic}/0") == 4

    async with listening(stream, store, topic, flush_seconds=OFTEN):
        await until(moved, "the position to move")
    assert [after - was for after, was in zip(skipped(), before, strict=True)] == [1, 2, 1]


def skipped() -> list[float]:
    return [FEEDBACK_RECORDS.labels(reason)._value.get() for reason in ("unreadable", "no-job", "bad-job")]


async def test_a_full_fold_is_stored_before_its_time(stream: Stream, store: Store, topic: str, job: str) -> None:
    await stream.setup({topic: 1})
    strangers = [answers(f"stranger-{number}", 1)[0] for number in range(MAX_KEYS)]
    await stream.publish(topic, answers(job, 10) + strangers)
    async with listening(stream, store, topic, flush_seconds=NEVER):
        await until(acks(store, job, 10), "10 counted")


async def test_two_that_hold_the_same_records_count_them_once(
    tmp_path: Path, store: Store, topic: str, job: str
) -> None:
    """Readers of a local log do not share it: each of these reads everything, at its own pace."""
    stream = LocalStream(tmp_path / "stream.db")
    async with AsyncExitStack() as both:
        for flush_seconds in (0.05, 0.07):
            await both.enter_async_context(listening(stream, store, topic, flush_seconds=flush_seconds))
        for _ in range(40):
            await stream.publish(topic, answers(job, 50))
        await until(acks(store, job, 2_000), "2,000 counted")
        await stream.publish(topic, answers(job, 50))
        await until(acks(store, job, 2_050), "2,050 counted")
    assert await acks(store, job, 2_050)()
    await stream.close()


async def test_transactions_leave_gaps_that_count_nothing(kafka: Stream, store: Store, topic: str, job: str) -> None:
    await kafka.setup({topic: 1})
    async with listening(kafka, store, topic, flush_seconds=OFTEN):
        for ordinal in range(6):
            batch = Batch(job_id=job, ordinal=ordinal, range=KeyRange(0, 9), size=7)
            async with kafka.lane() as lane:
                await lane.produce(batch, topic, answers(job, 7), BatchPart(Receipt(sent=7)))
            await until(acks(store, job, 7 * (ordinal + 1)), "a transaction's records")
    async with listening(kafka, store, topic, flush_seconds=OFTEN):
        await kafka.publish(topic, answers(job, 1))
        await until(acks(store, job, 43), "the record behind the last gap")


async def test_a_log_that_was_cut_at_its_head_goes_on_at_the_first_record_that_is_left(
    kafka: Stream, store: Store, topic: str, job: str, admin: AIOKafkaAdminClient
) -> None:
    await kafka.setup({topic: 1})
    await kafka.publish(topic, answers(job, 100))
    async with listening(kafka, store, topic, flush_seconds=OFTEN):
        await until(acks(store, job, 100), "100 counted")
    await kafka.publish(topic, answers(job, 50))
    await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=130)})
    async with listening(kafka, store, topic, flush_seconds=OFTEN):
        await until(acks(store, job, 120), "the 20 that are left")
        await kafka.publish(topic, answers(job, 5))
        await until(acks(store, job, 125), "5 more")
    assert await offset(store, f"{topic}/0") == 155


async def make_anew(admin: AIOKafkaAdminClient, topic: str, servers: str, records: list[bytes]) -> None:
    """Delete the topic and make it again, with these records."""
    await admin.delete_topics([topic])

    async def gone() -> bool:
        return topic not in await admin.list_topics()

    await until(gone, "the topic to be gone")
    # A producer of its own: another one may still know the old topic.
    anew = KafkaStream(KafkaServers(servers))
    await anew.setup({topic: 1})
    await anew.publish(topic, records)
    await anew.close()


@pytest.mark.parametrize("count", and_rarely(100, 150, rarely=(30,)), ids=["as long", "longer", "shorter"])
async def test_a_topic_that_was_made_anew_is_counted_from_its_beginning(
    kafka: Stream,
    store: Store,
    topic: str,
    job: str,
    admin: AIOKafkaAdminClient,
    stack: Endpoints,
    count: int,
) -> None:
    await kafka.setup({topic: 1})
    await kafka.publish(topic, answers(job, 100))
    async with listening(kafka, store, topic, flush_seconds=OFTEN):
        await until(acks(store, job, 100), "100 counted")
    await make_anew(admin, topic, stack.kafka_servers, answers(job, count))
    async with listening(kafka, store, topic, flush_seconds=OFTEN):
        await until(acks(store, job, 100 + count), "the new topic's records")
    async with listening(kafka, store, topic, flush_seconds=OFTEN):
        await until(lambda: offset_is(store, topic, count), "the new topic's end")
        assert await acks(store, job, 100 + count)()


async def offset_is(store: Store, topic: str, expected: int) -> bool:
    return await offset(store, f"{topic}/0") == expected


@pytest.mark.slow
@pytest.mark.parametrize("count", [30, 150], ids=["shorter", "longer"])
async def test_a_topic_that_is_made_anew_below_its_reader_is_counted_once(
    kafka: Stream,
    store: Store,
    topic: str,
    job: str,
    admin: AIOKafkaAdminClient,
    stack: Endpoints,
    count: int,
) -> None:
    """What the reader holds of the old topic is stored, though it was not due and nobody can read it again."""
    await kafka.setup({topic: 1})
    await kafka.publish(topic, answers(job, 100))
    async with listening(kafka, store, topic, flush_seconds=NEVER) as listener:
        await until(folded(listener, 100), "100 folded")
        await make_anew(admin, topic, stack.kafka_servers, answers(job, count))
        await until(acks(store, job, 100), "the old topic's fold to be stored", 60)
        await until(folded(listener, count), "the new topic's records", 60)
    assert await acks(store, job, 100 + count)()
    async with listening(kafka, store, topic, flush_seconds=OFTEN):
        await until(lambda: offset_is(store, topic, count), "the new topic's end")
        assert await acks(store, job, 100 + count)()


@pytest.fixture
def alone(store: Store, tmp_path: Path) -> Callable[[], Listener]:
    """A listener that is told each log by the test."""
    return lambda: Listener(LocalStream(tmp_path / "stream.db"), store, FeedbackSettings())


async def fold(listener: Listener, partition: str, log_id: str, upto: int, records: Sequence[bytes]) -> int:
    """Take a seat in this log and fold its records from there; where the seat is."""
    first = (await listener._begin({partition: log_id}))[partition]
    await listener._fold(
        Chunk(partition, list(range(first, upto)), upto, list(records[first:upto])), NO_READER, asyncio.Event()
    )
    return first


async def test_a_broker_that_still_tells_the_old_topic_has_nothing_counted_again(
    store: Store, topic: str, job: str, alone: Callable[[], Listener]
) -> None:
    partition, records, listener = f"{topic}/0", answers(job, 50), alone()
    await store.feedbacks.flush(partition, Position(), Position(100, "old"), {(job, "ack"): 100})
    assert await fold(listener, partition, "new", 50, records) == 0
    for _ in range(2):
        with pytest.raises(Unavailable, match="earlier id old"):
            await listener._begin({partition: "old"})
    assert await fold(listener, partition, "new", 50, records) == 50
    assert await acks(store, job, 150)()
    assert await store.feedbacks.positions([partition]) == {partition: Position(50, "new", ("old",))}


async def test_a_fold_of_the_old_topic_that_comes_late_takes_its_reader_along(
    store: Store, topic: str, job: str, alone: Callable[[], Listener]
) -> None:
    """Another process reads the new topic by now. This one stands in the old one, and may not wait there."""
    partition, late = f"{topic}/0", alone()
    await store.feedbacks.flush(partition, Position(), Position(100, "old"), {(job, "ack"): 100})
    await fold(late, partition, "old", 120, answers(job, 120))
    await fold(other := alone(), partition, "new", 50, answers(job, 50))
    await other._flush(partition, NO_READER, asyncio.Event())
    async with asyncio.timeout(30):
        with pytest.raises(Unavailable, match="earlier id old"):
            await late._flush(partition, NO_READER, asyncio.Event())
    assert await late._begin({partition: "new"}) == {partition: 50}
    assert await acks(store, job, 150)()


async def test_records_whose_log_cannot_be_asked_for_are_read_again(
    kafka: Stream, store: Store, topic: str, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was fetched then is dropped, and belongs to no fold."""
    asked = 0

    async def answer_two_of_three(client: Any, topics: Iterable[str]) -> dict[str, str]:
        nonlocal asked
        asked += 1
        if asked % 3 == 0:
            raise KafkaConnectionError("away")
        return await topic_ids(client, topics)

    monkeypatch.setattr("shared.drivers.kafka.reader.topic_ids", answer_two_of_three)
    await kafka.setup({topic: 3})
    async with listening(kafka, store, topic, flush_seconds=OFTEN):
        for total in (100, 200, 300):
            await kafka.publish(topic, answers(job, 100))
            await until(acks(store, job, total), f"{total} counted", 60)
    assert asked >= 6


def waits(logs: list[EventDict]) -> int:
    return sum(entry["event"] == "feedback waits to read" for entry in logs)


@pytest.fixture
def proxy(stack: Endpoints) -> SilencableProxy:
    url = urlsplit(stack.mongo_url)
    assert url.hostname
    assert url.port
    return SilencableProxy(url.hostname, url.port)


@pytest.mark.slow
async def test_positions_that_cannot_be_read_at_first_are_asked_for_again(
    stream: Stream, store: Store, topic: str, job: str, ready_database: str, proxy: SilencableProxy
) -> None:
    """A wrong start would count the first hundred twice or the second never."""
    await stream.setup({topic: 3})
    await stream.publish(topic, answers(job, 100))
    async with listening(stream, store, topic, flush_seconds=OFTEN):
        await until(acks(store, job, 100), "100 counted")
    await stream.publish(topic, answers(job, 100))
    async with proxy.running():
        behind = Store.open(through_port(ready_database, proxy.port), timeout_seconds=1)
        proxy.silent = True
        with capture_logs() as logs:
            async with listening(stream, behind, topic, flush_seconds=OFTEN):
                await until(lambda: waits(logs) >= 2, "two attempts that fail")
                proxy.silent = False
                await until(acks(store, job, 200), "200 counted")
        await behind.close()
    assert await acks(store, job, 200)()
