"""Reading the receivers' events: records in order, from positions that the reader keeps elsewhere."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from shared.core.documents import LogRange


class Chunk(Struct, frozen=True):
    """Consecutive records of one partition (`topic/number`) with their offsets, which may have gaps. `next` is the
    position to read on from."""

    partition: str
    offsets: list[int]
    next: int
    values: list[bytes | None]

    @property
    def first(self) -> int:
        """The offset of the first record; `next` if there is none."""
        return self.offsets[0] if self.offsets else self.next


Positions = Callable[[Mapping[str, str]], Awaitable[Mapping[str, int]]]
"""Given a reader's partitions with the ids of their logs, returns the positions to start at. A missing partition starts
at its beginning. A topic that is deleted and created again has another id; a stream that never deletes topics gives an
empty one."""


class Reader(Protocol):
    """A member of a consumer group that reads committed records and keeps its positions elsewhere.

    A partition's records come from the log that the reader asked the position for. If another log takes its place, the
    reader asks again.
    """

    async def read(self, wait_seconds: float) -> list[Chunk]:
        """The chunks that arrived, after waiting at most `wait_seconds` for the first."""

    def ends(self) -> Mapping[str, int]:
        """The end of each partition that this reader reads, as far as it knows."""

    async def rewind(self, partition: str, position: int) -> None:
        """Read on from `position`, if the partition is still assigned."""

    async def report(self, positions: Mapping[str, int]) -> None:
        """Tell the group these positions, only for the operators' lag graphs. Never raises."""


class RangeReader(Protocol):
    async def read(self, wait_seconds: float) -> list[Chunk]:
        """The next records of unfinished ranges, each partition's in order, after waiting at most `wait_seconds` for
        the first. Returns nothing after all ranges are read.

        The last chunk of a range ends at the range's end. Records that the log no longer has are missing; so is a whole
        range that belongs to another log.
        """


class Ranges(Protocol):
    """The part of a stream that returns records a second time."""

    async def find_ranges(
        self, topic: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Mapping[str, LogRange]:
        """The records of each partition appended from `since` to before `until`; without these, from the first to the
        last.

        The times are the brokers' (or the publishers', if Carillon did not create the topic), as exact as the brokers'
        index: a caller that needs exact times asks for a longer range. An unknown topic raises `Unavailable`.
        """

    def read_ranges(self, ranges: Mapping[str, LogRange]) -> AbstractAsyncContextManager[RangeReader]: ...
