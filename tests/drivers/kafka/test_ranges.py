"""What both logs promise of ranges: found by time, read once to their fixed end, and honest about what is gone."""

import asyncio
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition
from msgspec.structs import replace

from shared.core.documents import LogRange
from shared.drivers.kafka import Stream
from shared.drivers.kafka.local import LocalStream
from shared.drivers.kafka.reading import Chunk
from tests.waiting import until

DAY = timedelta(days=1)


@pytest.fixture
def stream(either_stream: Stream) -> Stream:
    return either_stream


@pytest.fixture
async def topic(stream: Stream) -> str:
    name = f"ranges-{secrets.token_hex(4)}"
    await stream.setup({name: 2})
    await until(lambda: stream.spans(name), "the new topic")
    return name


async def append(stream: Stream, topic: str, first: int, count: int) -> None:
    values = [b"%d" % number for number in range(first, first + count)]
    await stream.publish(topic, values, keys=values)


async def read(stream: Stream, ranges: Mapping[str, LogRange]) -> dict[str, list[Chunk]]:
    """The chunks of each range, until all are read."""
    found: dict[str, list[Chunk]] = {name: [] for name in ranges}
    left = {name for name, range in ranges.items() if range.begins < range.ends}
    async with stream.read_ranges(ranges) as reader:

        async def are_all_read() -> bool:
            for chunk in await reader.read(0.5) if left else ():
                assert chunk.next <= ranges[chunk.partition].ends
                found[chunk.partition].append(chunk)
                left.difference_update({chunk.partition} if chunk.next == ranges[chunk.partition].ends else ())
            return not left

        await until(are_all_read, "the ends of the ranges")
        assert await reader.read(0) == []
    return found


def values_of(found: Mapping[str, list[Chunk]]) -> list[int]:
    return sorted(int(value or b"-1") for chunks in found.values() for chunk in chunks for value in chunk.values)


async def forget(stream: Stream, ranges: Mapping[str, LogRange], upto: Mapping[str, int], servers: str) -> None:
    """Have the log forget what lies before these offsets."""
    if isinstance(stream, LocalStream):
        for name, offset in upto.items():
            query = ("DELETE FROM records WHERE topic = ? AND position < ?", (name.removesuffix("/0"), offset))
            await stream.transact(lambda log, query=query: log.execute(*query))  # type: ignore[misc]
        return
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    places = [(name.rpartition("/"), offset) for name, offset in upto.items()]
    await admin.delete_records({TopicPartition(name[0], int(name[2])): RecordsToDelete(to) for name, to in places})
    await admin.close()


async def test_a_range_ends_where_it_was_fixed(stream: Stream, topic: str) -> None:
    assert values_of(await read(stream, await stream.find_ranges(topic))) == []
    await append(stream, topic, 0, 2_500)
    ranges = await stream.find_ranges(topic)
    assert sum(range.ends - range.begins for range in ranges.values()) == 2_500
    await append(stream, topic, 2_500, 10)
    found = await read(stream, ranges)
    assert values_of(found) == list(range(2_500))
    for chunks in found.values():
        offsets = [offset for chunk in chunks for offset in chunk.offsets]
        assert offsets == list(range(len(offsets)))
    # Read on from the middle: the rest, and nothing else.
    middle = {name: replace(range, begins=range.begins + 5) for name, range in ranges.items()}
    assert len(values_of(await read(stream, middle))) == sum(max(range.ends - 5, 0) for range in ranges.values())


async def test_a_range_is_found_by_time(stream: Stream, topic: str) -> None:
    await append(stream, topic, 0, 20)
    await asyncio.sleep(0.02)  # so that the two have different milliseconds
    between = datetime.now(UTC)
    await append(stream, topic, 20, 20)
    after = await stream.find_ranges(topic, since=between)
    before = await stream.find_ranges(topic, until=between)
    assert values_of(await read(stream, after)) == list(range(20, 40))
    assert values_of(await read(stream, before)) == list(range(20))
    empty = await stream.find_ranges(topic, since=between + DAY)
    assert {range.ends - range.begins for range in empty.values()} == {0}
    assert await stream.find_ranges(topic, since=between - DAY) == await stream.find_ranges(topic)


async def test_what_is_forgotten_is_missing(stream: Stream, topic: str, request: pytest.FixtureRequest) -> None:
    await append(stream, topic, 0, 60)
    ranges = await stream.find_ranges(topic)
    last = max(ranges)
    upto = {name: range.ends if name == last and len(ranges) > 1 else 7 for name, range in ranges.items()}
    servers = "" if isinstance(stream, LocalStream) else request.getfixturevalue("stack").kafka_servers
    await append(stream, topic, 60, 40)
    await forget(stream, ranges, upto, servers)
    found = await read(stream, ranges)
    for name, chunks in found.items():
        offsets = [offset for chunk in chunks for offset in chunk.offsets]
        assert offsets == list(range(upto[name], ranges[name].ends))
    assert {name: range.first for name, range in (await stream.find_ranges(topic)).items()} == upto


async def test_nothing_is_read_of_another_log(stream: Stream, topic: str) -> None:
    await append(stream, topic, 0, 30)
    ranges = {name: replace(range, log="another") for name, range in (await stream.find_ranges(topic)).items()}
    assert values_of(await read(stream, ranges)) == []
