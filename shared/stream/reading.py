"""Reading what the receivers say: records in order, from positions that the reader keeps elsewhere."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from shared.domain.positions import LogRange


class Chunk(Struct, frozen=True):
    """Consecutive records of one partition, and the offset of each: some may be missing in between. `next` is the
    position to read on from; `partition` reads `topic/number`."""

    partition: str
    offsets: list[int]
    next: int
    values: list[bytes | None]

    @property
    def first(self) -> int:
        """The offset of the first one; where there is none, `next`."""
        return self.offsets[0] if self.offsets else self.next


Positions = Callable[[Mapping[str, str]], Awaitable[Mapping[str, int]]]
"""Given the partitions that a reader was assigned, where to start in each; a missing one starts at its beginning. With
each comes the id of its log: a topic that is deleted and made anew has another one. It is empty where a stream deletes
no topics."""


class Reader(Protocol):
    """A member of a consumer group that reads committed records and keeps its positions elsewhere.

    Its records of a partition come from the log that it asked the position for. When another log takes its place, it
    asks again.
    """

    async def read(self, wait_seconds: float) -> list[Chunk]:
        """The chunks that have come, after waiting at most so long for the first. Raises `Unavailable`."""

    def ends(self) -> Mapping[str, int]:
        """The end of the records of each partition that it reads, as far as the reader has heard."""

    async def rewind(self, partition: str, position: int) -> None:
        """Read the partition on from this position, if it is still assigned."""

    async def report(self, positions: Mapping[str, int]) -> None:
        """Tell the group where this reader stands, for people's lag graphs only. Never raises."""


class RangeReader(Protocol):
    """Reads ranges of partitions, in no group."""

    async def read(self, wait_seconds: float) -> list[Chunk]:
        """The next records of ranges that are not read yet, each partition's in order, after waiting at most so long
        for the first; nothing once all is read. Raises `Unavailable`.

        The last chunk of a range ends where the range does, whatever the log still has: records that it has no more
        are missing, and so is all of a range that lies in another log.
        """


class Ranges(Protocol):
    """The part of a stream that gives out records a second time."""

    async def find_ranges(
        self, topic: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Mapping[str, LogRange]:
        """The records that were appended from `since` to before `until`, of each partition; without these, from the
        first that is there and to the last. The times are the brokers' (of a topic that was not made by us, perhaps
        those of who appended), and only as exact as their index: whoever needs them exact asks for more. Raises
        `Unavailable`, also for a topic that no broker knows."""

    def read_ranges(self, ranges: Mapping[str, LogRange]) -> AbstractAsyncContextManager[RangeReader]:
        """Read these ranges, by their partitions. Entering raises `Unavailable`."""
