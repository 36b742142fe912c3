"""The stream as a local log in SQLite for the embedded mode: the same promise without a broker.

The records of a batch's part and its receipt are one SQLite transaction; a batch keeps the receipt of its last part.
Fencing inserts a row for the lane, and every later transaction of the lane looks for that row. All statements run on
one thread, so a fence waits for an open transaction. A topic has one partition, and a group one reader at a time. The
file has an id, so that readers notice another file in its place. Each append to a topic with a retention deletes some
of its old records.
"""

import asyncio
import re
import secrets
import sqlite3
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from shared.clock.rules.callbacks import DeliveryError, TopicMessage, Undeliverable
from shared.core.documents import LogRange
from shared.core.errors import Invalid, LaneLost, Unavailable
from shared.drivers.kafka import NO_TOPICS, LateRecords, TopicSpec, as_spec, check_keys
from shared.drivers.kafka.reading import Chunk, Positions
from shared.jobs.rules.batches import Batch, BatchPart, Receipt
from shared.runtime.faults import fault

_RANGE_AT_ONCE = 2_000
# Positions have no gaps, but the first records may be gone.
_APPENDED = "SELECT coalesce(appended_at, 0) FROM records WHERE topic = ? AND position >= ? ORDER BY position LIMIT 1"
_RECORDS = """
SELECT position, value FROM records WHERE topic = ? AND position >= ? AND position < ? ORDER BY position LIMIT ?
"""
T = TypeVar("T")


class LocalRangeReader:
    def __init__(self, stream: "LocalStream", ranges: Mapping[str, LogRange]) -> None:
        self._stream = stream
        self._left = {name: range for name, range in ranges.items() if range.begins < range.ends}

    async def read(self, wait_seconds: float) -> list[Chunk]:
        """Wait for nothing: each record exists or is gone."""
        chunks = await self._stream.transact(self._read)
        for chunk in chunks:
            left = self._left.pop(chunk.partition)
            if chunk.next < left.ends:
                self._left[chunk.partition] = LogRange(chunk.next, left.ends, left.log)
        return chunks

    def _read(self, log: sqlite3.Connection) -> list[Chunk]:
        id = _read_id(log)
        return [_range_chunk(log, name, left, is_there=left.log == id) for name, left in self._left.items()]


def _range_chunk(log: sqlite3.Connection, partition: str, left: LogRange, *, is_there: bool) -> Chunk:
    query = (partition.removesuffix("/0"), left.begins, left.ends, _RANGE_AT_ONCE)
    rows = log.execute(_RECORDS, query).fetchall() if is_there else []
    upto = rows[-1][0] + 1 if len(rows) == _RANGE_AT_ONCE else left.ends
    return Chunk(partition, [offset for offset, _ in rows], upto, [value for _, value in rows])


_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS topics (name TEXT PRIMARY KEY, keep_seconds REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS records (topic TEXT, position INTEGER, value BLOB, appended_at REAL,
                                    PRIMARY KEY (topic, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS receipts (batch TEXT PRIMARY KEY, lane TEXT, receipt TEXT, part INTEGER,
                                     next INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fenced (lane TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log (id TEXT PRIMARY KEY) WITHOUT ROWID;
"""
# Only the part that follows the last one may be written.
_NEXT_PART = """
INSERT INTO receipts (batch, lane, receipt, part, next) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (batch) DO UPDATE SET lane = excluded.lane, receipt = excluded.receipt, part = excluded.part,
                                  next = excluded.next
WHERE receipts.part = excluded.part - 1
"""
# Deletes the oldest records that are too old. The last record of a topic is always younger: it was just appended.
_FORGET = """
DELETE FROM records WHERE topic = :topic AND position IN (
    SELECT position FROM (
        SELECT position, appended_at FROM records WHERE topic = :topic ORDER BY position LIMIT :most
    ) WHERE appended_at < :before
)
"""
_MAKE_TOPIC = """
INSERT INTO topics (name, keep_seconds) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET keep_seconds = excluded.keep_seconds
"""
_READ_AT_ONCE = 5_000
_FORGET_AT_ONCE = 500


class LocalStream:
    delivers = False

    def __init__(self, path: Path, *, lanes: int = 4) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="local-stream")
        self._connection: sqlite3.Connection | None = None
        self._permits = asyncio.Semaphore(lanes)
        self._appended = asyncio.Condition()

    @classmethod
    def open(cls, url: str, *, lanes: int = 4) -> Self:
        """Open `local:///absolute/path`. Raises `Invalid`."""
        path = unquote(urlsplit(url).path)
        if not path.startswith("/"):
            raise Invalid("needs local:///absolute/path", field="stream.url")
        return cls(Path(path), lanes=lanes)

    async def setup(self, topics: Mapping[str, int | TopicSpec]) -> None:
        retentions = {name: as_spec(spec).retention for name, spec in topics.items()}
        kept = [(name, None if kept is None else kept.total_seconds()) for name, kept in retentions.items()]
        await self.transact(lambda log: log.executemany(_MAKE_TOPIC, kept))

    async def verify(self, topics: Mapping[str, TopicSpec] = NO_TOPICS) -> None:
        query = "SELECT name FROM topics"
        present = await self.transact(lambda log: {name for (name,) in log.execute(query)})
        if missing := sorted(topics.keys() - present):
            raise Unavailable(f"local stream: topic {missing[0]} is missing: run `carillon init`")

    @asynccontextmanager
    async def lane(self) -> AsyncIterator["LocalLane"]:
        async with self._permits:
            yield LocalLane(self)

    async def recover(self, batch: Batch) -> BatchPart | None:
        await self.transact(lambda log: log.execute("INSERT OR IGNORE INTO fenced VALUES (?)", (batch.owner,)))
        await fault("stream.marker_read")
        query = "SELECT receipt, part, next FROM receipts WHERE batch = ? AND lane = ? AND part = ?"
        wanted = (batch.id, batch.owner, batch.parts + 1)
        found = await self.transact(lambda log: log.execute(query, wanted).fetchone())
        return BatchPart(msgspec.json.decode(found[0], type=Receipt), *found[1:]) if found else None

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        check_keys(values, keys)  # all records of a topic are in order here, whatever their keys are
        await self.transact(lambda log: _append(log, topic, values))
        await self.announce()

    async def append(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes], *, patience_seconds: float, seconds: float
    ) -> Sequence[LateRecords]:
        await self.publish(topic, values, keys=keys)  # a topic has one partition
        return ()

    async def deliver(self, messages: Sequence[TopicMessage]) -> list[DeliveryError | None]:
        return [Undeliverable("this deployment has no Kafka") for _ in messages]

    @asynccontextmanager
    async def reader(
        self, pattern: str, *, group: str, positions: Positions | None = None
    ) -> AsyncIterator["LocalReader"]:
        yield LocalReader(self, pattern, positions)

    async def spans(self, topic: str) -> Mapping[str, tuple[int, int]]:
        return await self.transact(lambda log: _read_span(log, topic))

    async def find_ranges(
        self, topic: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Mapping[str, LogRange]:
        def find(log: sqlite3.Connection) -> dict[str, LogRange]:
            [(name, (first, end))] = _read_span(log, topic).items()

            def appended_at(place: int) -> float:
                return float(log.execute(_APPENDED, (topic, place)).fetchone()[0])

            def position(at: datetime) -> int:
                return first + bisect_left(range(first, end), at.timestamp(), key=appended_at)

            begins, ends = position(since) if since else first, position(until) if until else end
            return {name: LogRange(begins, ends, _read_id(log), first)}

        return await self.transact(find)

    @asynccontextmanager
    async def read_ranges(self, ranges: Mapping[str, LogRange]) -> AsyncIterator[LocalRangeReader]:
        yield LocalRangeReader(self, ranges)

    async def ping(self) -> None:
        await self.transact(lambda log: log.execute("SELECT 1").fetchone())

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, connection.close)
        self._thread.shutdown(wait=False)

    async def transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` as one transaction. After `Unavailable`, the transaction may have happened."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._transact, work)
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise Unavailable(f"local stream: {error}") from error

    async def announce(self) -> None:
        async with self._appended:
            self._appended.notify_all()

    async def wait_for_append(self, wait_seconds: float) -> None:
        """Return after this process appended records, or after `wait_seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds), self._appended:
                await self._appended.wait()

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level="IMMEDIATE")
            self._connection.executescript(_SCHEMA)
            with self._connection as log:
                log.execute("INSERT INTO log SELECT ? WHERE NOT EXISTS (SELECT 1 FROM log)", (secrets.token_hex(12),))
        with self._connection as log:
            return work(log)


class LocalLane:
    def __init__(self, stream: LocalStream) -> None:
        self.id = f"local-{secrets.token_hex(12)}"
        self._stream = stream

    async def produce(self, batch: Batch, topic: str, records: Sequence[bytes], part: BatchPart) -> None:
        await fault("send.in_transaction")
        try:
            await self._stream.transact(lambda log: self._commit(log, batch.id, topic, records, part))
            await fault("stream.commit_reply")
        except (sqlite3.IntegrityError, Unavailable, OSError) as error:
            raise LaneLost(self.id, str(error)) from error
        await self._stream.announce()

    def _commit(
        self, log: sqlite3.Connection, batch_id: str, topic: str, records: Sequence[bytes], part: BatchPart
    ) -> None:
        receipt = msgspec.json.encode(part.receipt).decode()
        if not log.execute(_NEXT_PART, (batch_id, self.id, receipt, part.number, part.next)).rowcount:
            raise sqlite3.IntegrityError("the part is out, or the one before it is not")
        if log.execute("SELECT 1 FROM fenced WHERE lane = ?", (self.id,)).fetchone():
            raise sqlite3.IntegrityError("fenced")
        _append(log, topic, records)


class LocalReader:
    def __init__(self, stream: LocalStream, pattern: str, positions: Positions | None) -> None:
        self._stream = stream
        self._pattern = re.compile(pattern)
        self._positions = positions
        self._next: dict[str, int] = {}
        self._ends: dict[str, int] = {}

    async def read(self, wait_seconds: float) -> list[Chunk]:
        chunks = await self._present()
        if not chunks and wait_seconds:
            await self._stream.wait_for_append(wait_seconds)
            chunks = await self._present()
        return chunks

    def ends(self) -> Mapping[str, int]:
        return dict(self._ends)

    async def rewind(self, partition: str, position: int) -> None:
        if partition in self._next:
            self._next[partition] = position

    async def report(self, positions: Mapping[str, int]) -> None:
        """Do nothing: a local log has no lag graphs."""

    async def _present(self) -> list[Chunk]:
        await self._assign()
        standing = dict(self._next)
        found = await self._stream.transact(lambda log: [_chunk(log, name, at) for name, at in standing.items()])
        self._ends = await self._stream.transact(lambda log: {name: _end(log, _topic(name)) for name in standing})
        chunks = [chunk for chunk in found if chunk is not None]
        self._next |= {chunk.partition: chunk.next for chunk in chunks}
        return chunks

    async def _assign(self) -> None:
        names = await self._stream.transact(lambda log: [row[0] for row in log.execute("SELECT name FROM topics")])
        matching = [f"{name}/0" for name in names if self._pattern.fullmatch(name)]
        new = [partition for partition in matching if partition not in self._next]
        if new:
            log_id = await self._stream.transact(_read_id)
            stored = await self._positions(dict.fromkeys(new, log_id)) if self._positions else {}
            self._next |= {partition: stored.get(partition, 0) for partition in new}


def _read_span(log: sqlite3.Connection, topic: str) -> Mapping[str, tuple[int, int]]:
    query = "SELECT MIN(position), MAX(position) FROM records WHERE topic = ?"
    first, last = log.execute(query, (topic,)).fetchone()
    return {f"{topic}/0": (0, 0) if last is None else (first, last + 1)}


def _read_id(log: sqlite3.Connection) -> str:
    (id,) = log.execute("SELECT id FROM log").fetchone()
    return str(id)


def _append(log: sqlite3.Connection, topic: str, values: Sequence[bytes]) -> None:
    log.execute("INSERT OR IGNORE INTO topics (name) VALUES (?)", (topic,))
    now = time.time()
    rows = ((topic, position, value, now) for position, value in enumerate(values, start=_end(log, topic)))
    log.executemany("INSERT INTO records (topic, position, value, appended_at) VALUES (?, ?, ?, ?)", rows)
    (keep,) = log.execute("SELECT keep_seconds FROM topics WHERE name = ?", (topic,)).fetchone()
    if keep is not None:
        log.execute(_FORGET, {"topic": topic, "before": now - keep, "most": _FORGET_AT_ONCE})


def _chunk(log: sqlite3.Connection, partition: str, position: int) -> Chunk | None:
    """The records from `position` on. If the topic ends before it, all records of the topic, as in Kafka."""
    topic = _topic(partition)
    begins = position if position <= _end(log, topic) else 0
    query = "SELECT position, value FROM records WHERE topic = ? AND position >= ? ORDER BY position LIMIT ?"
    rows = log.execute(query, (topic, begins, _READ_AT_ONCE)).fetchall()
    if not rows:
        return None
    return Chunk(partition, [offset for offset, _ in rows], rows[-1][0] + 1, [value for _, value in rows])


def _end(log: sqlite3.Connection, topic: str) -> int:
    (end,) = log.execute("SELECT coalesce(max(position) + 1, 0) FROM records WHERE topic = ?", (topic,)).fetchone()
    return int(end)


def _topic(partition: str) -> str:
    return partition.removesuffix("/0")
