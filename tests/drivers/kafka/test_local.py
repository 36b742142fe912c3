"""What a local log does by itself that Kafka's brokers do: it has an id, and forgets what is old."""

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from shared.drivers.kafka import TopicSpec
from shared.drivers.kafka.local import LocalStream

OF_TODAY, OF_THE_PAST = b"new", b"old"


@asynccontextmanager
async def opened(path: Path, retention: timedelta | None = None) -> AsyncIterator[LocalStream]:
    stream = LocalStream(path)
    await stream.setup({"t": TopicSpec(1, retention)})
    yield stream
    await stream.close()


async def read(stream: LocalStream) -> tuple[str, list[tuple[int, bytes | None]]]:
    """The id that a reader is told, and all that it reads, with the positions."""
    ids: list[str] = []

    async def positions(logs: Mapping[str, str]) -> Mapping[str, int]:
        ids.extend(logs.values())
        return {}

    found: list[tuple[int, bytes | None]] = []
    async with stream.reader("t", group="g", positions=positions) as reader:
        while chunks := await reader.read(0):
            for chunk in chunks:
                found += zip(chunk.offsets, chunk.values, strict=True)
    return ids[0], found


def make_old(path: Path) -> None:
    with sqlite3.connect(path) as log:
        log.execute("UPDATE records SET appended_at = appended_at - 86400")
    log.close()


async def test_a_file_keeps_its_id_and_another_one_in_its_place_has_another(tmp_path: Path) -> None:
    path = tmp_path / "stream.db"
    ids = []
    for _ in range(2):
        async with opened(path) as stream:
            ids.append((await read(stream))[0])
    for left in tmp_path.iterdir():
        left.unlink()
    async with opened(path) as stream:
        ids.append((await read(stream))[0])
    assert len(ids[0]) == 24
    assert ids[0] == ids[1] != ids[2]


async def test_what_is_older_than_the_topic_keeps_goes_at_the_next_append(tmp_path: Path) -> None:
    path = tmp_path / "stream.db"
    async with opened(path, timedelta(hours=1)) as stream:
        await stream.publish("t", [OF_THE_PAST] * 1_200)
    make_old(path)
    async with opened(path, timedelta(hours=1)) as stream:
        await stream.publish("t", [OF_TODAY])
        assert [place for place, _ in (await read(stream))[1]] == list(range(500, 1_201))
        for _ in range(3):
            await stream.publish("t", [OF_TODAY])
        assert await read(stream) == ((await read(stream))[0], [(place, OF_TODAY) for place in range(1_200, 1_204)])


async def test_a_topic_without_a_retention_forgets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "stream.db"
    async with opened(path) as stream:
        await stream.publish("t", [OF_THE_PAST])
    make_old(path)
    async with opened(path) as stream:
        await stream.publish("t", [OF_TODAY])
        assert (await read(stream))[1] == [(0, OF_THE_PAST), (1, OF_TODAY)]
