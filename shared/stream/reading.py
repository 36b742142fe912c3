"""Reading what the receivers say: records in order, from positions that the reader keeps elsewhere."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct


class Chunk(Struct, frozen=True):
    """Consecutive records of one partition. `next` is the position to read on from; `partition` reads
    `topic/number`."""

    partition: str
    first: int
    next: int
    values: list[bytes | None]


Positions = Callable[[Mapping[str, str]], Awaitable[Mapping[str, int]]]
"""Given the partitions that a reader was assigned, where to start in each; a missing one starts at its beginning. With
each comes the id of its log: a topic that is deleted and made anew has another one. It is empty where a stream deletes
no topics."""


class Reader(Protocol):
    """A member of a consumer group that reads committed records and keeps its positions elsewhere.

    What it reads of a partition comes from the log that it asked the position for. When another log takes its place, it
    asks again.
    """

    async def read(self, wait_seconds: float) -> list[Chunk]:
        """What has come, after waiting at most so long for the first of it. Raises `Unavailable`."""

    def ends(self) -> Mapping[str, int]:
        """Where the records of each partition that it reads ended, as far as the reader has heard."""

    async def rewind(self, partition: str, position: int) -> None:
        """Read the partition on from this position, if it is still assigned."""

    async def report(self, positions: Mapping[str, int]) -> None:
        """Tell the group where this reader stands, for people's lag graphs only. Never raises."""
