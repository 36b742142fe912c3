"""Ranges of the local log, found by time, and their records."""

import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol, TypeVar

from shared.domain.positions import LogRange
from shared.stream.reading import Chunk

_READ_AT_ONCE = 2_000
# Positions have no gaps, but the first records may be gone.
_APPENDED = "SELECT coalesce(appended_at, 0) FROM records WHERE topic = ? AND position >= ? ORDER BY position LIMIT 1"
_RECORDS = """
SELECT position, value FROM records WHERE topic = ? AND position >= ? AND position < ? ORDER BY position LIMIT ?
"""

T = TypeVar("T")


class LocalLog(Protocol):
    """A local log that runs transactions."""

    async def transact(self, work: Callable[[sqlite3.Connection], T]) -> T: ...


def find_local_range(
    log: sqlite3.Connection, topic: str, span: tuple[int, int], id: str, since: datetime | None, until: datetime | None
) -> LogRange:
    """See `shared.stream.Stream.find_ranges`. `span` is the topic's first position and its end."""
    first, end = span

    def find(at: datetime) -> int:
        places = range(first, end)
        return first + bisect_left(places, at.timestamp(), key=lambda place: _appended_at(log, topic, place))

    return LogRange(first if since is None else find(since), end if until is None else find(until), id, first)


class LocalRangeReader:
    """See `shared.stream.reading.RangeReader`. `id` reads the id of the log."""

    def __init__(
        self, stream: LocalLog, ranges: Mapping[str, LogRange], id: Callable[[sqlite3.Connection], str]
    ) -> None:
        self._stream = stream
        self._left = {name: range for name, range in ranges.items() if range.begins < range.ends}
        self._id = id

    async def read(self, wait_seconds: float) -> list[Chunk]:
        """Wait for nothing: each record exists or is gone."""
        chunks = await self._stream.transact(self._read)
        for chunk in chunks:
            left = self._left.pop(chunk.partition)
            if chunk.next < left.ends:
                self._left[chunk.partition] = LogRange(chunk.next, left.ends, left.log)
        return chunks

    def _read(self, log: sqlite3.Connection) -> list[Chunk]:
        id = self._id(log)
        return [_chunk(log, name, left, is_there=left.log == id) for name, left in self._left.items()]


def _chunk(log: sqlite3.Connection, partition: str, left: LogRange, *, is_there: bool) -> Chunk:
    query = (partition.removesuffix("/0"), left.begins, left.ends, _READ_AT_ONCE)
    rows = log.execute(_RECORDS, query).fetchall() if is_there else []
    upto = rows[-1][0] + 1 if len(rows) == _READ_AT_ONCE else left.ends
    return Chunk(partition, [offset for offset, _ in rows], upto, [value for _, value in rows])


def _appended_at(log: sqlite3.Connection, topic: str, position: int) -> float:
    return float(log.execute(_APPENDED, (topic, position)).fetchone()[0])
