"""Positions: the reading positions in partitions of the stream that Carillon stores itself, and ranges of
partitions."""

from collections.abc import Mapping

from msgspec import Struct

from shared.domain.errors import Unavailable

_LOGS_LEFT = 8


class LogRange(Struct, frozen=True):
    """A part of a partition in the log of this id: from the offset `begins` to before `ends`. The log has nothing
    before `first` any more."""

    begins: int
    ends: int
    log: str
    first: int = 0


class Position(Struct, frozen=True):
    """The reading position of a partition: up to this offset of this log. `log` is the id of the topic, which differs
    for another topic of the same name; it is empty if unknown. `left` are the last logs that were read before it: a
    lagging broker may still report their ids."""

    offset: int = 0
    log: str = ""
    left: tuple[str, ...] = ()

    def begin(self, log: str) -> "Position":
        """The position to continue from in a log of the partition: its beginning if it is another log than before. A
        log that was left is unavailable: nothing new can come from it."""
        if not log or log == self.log:
            return self
        if not self.log:
            return Position(self.offset, log, self.left)
        if log in self.left:
            raise Unavailable(f"Kafka: a broker still tells the topic's earlier id {log}")
        return Position(0, log, (*self.left, self.log)[-_LOGS_LEFT:])


class LogEnds(Struct, frozen=True, kw_only=True):
    """The end of the log of this id at a moment, which has an `id` too: the offset after the last record of each
    partition."""

    id: str
    log: str
    offsets: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, id: str, ranges: Mapping[str, LogRange]) -> "LogEnds":
        offsets = tuple(sorted((name, range.ends) for name, range in ranges.items()))
        return cls(id=id, log=next((range.log for range in ranges.values()), ""), offsets=offsets)

    def are_read(self, positions: Mapping[str, Position]) -> bool:
        """Whether everything before the ends is read, or is in a log that was left for another."""
        read = ((positions.get(name, Position()), end) for name, end in self.offsets)
        return all(at.offset >= end if at.log in {"", self.log} else self.log in at.left for at, end in read)
