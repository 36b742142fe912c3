"""Rules that the stored documents of all subjects share: moves of a status, versions, positions and own events.

A store makes the filter of every move from its transition table (for each status, the statuses that may follow
it), so that only moves of the table are made.

Processes of two neighbouring releases run side by side on one database, in any mixture. So a release ignores
unknown fields, and a larger change comes in two steps: one release reads it, the next one writes it. `VERSION`
counts the releases that changed the stored documents. `OLDEST` is the oldest that still reads everything that this
one writes.

A position is that of a reader in a partition of the stream. An own event is about a change of a job, message or
schedule: the change stores it, and a fan-out publishes it. It goes to each namespace that has a role over its app
or namespace, and viewers may see all of it: an event contains no recipient, and no answer of a target or provider.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from msgspec import Struct

from shared.core.errors import CarillonError, Unavailable
from shared.core.instants import EPOCH

AnyStatus = TypeVar("AnyStatus", bound=StrEnum)


def sources(table: Mapping[AnyStatus, frozenset[AnyStatus]], to: AnyStatus) -> frozenset[AnyStatus]:
    return frozenset(status for status, targets in table.items() if to in targets)


def final(table: Mapping[AnyStatus, frozenset[AnyStatus]]) -> frozenset[AnyStatus]:
    return frozenset(status for status, targets in table.items() if not targets)


def source_of(table: Mapping[AnyStatus, frozenset[AnyStatus]], source: AnyStatus, to: AnyStatus) -> AnyStatus:
    """This source, for a move that has no other one."""
    if to not in table[source]:
        raise ValueError(f"{to} does not follow {source}")
    return source


VERSION = 2
OLDEST = 1


class Stamp(Struct, frozen=True):
    """The note of `carillon init` in the database: the newest version, and the oldest that may work there."""

    version: int
    oldest: int


class TooOld(CarillonError):
    """This process is of a release that must not work on this database any more."""


def check_stamp(stamp: Stamp) -> None:
    """Raise `TooOld` if a later release has excluded this one."""
    if stamp.oldest > VERSION:
        raise TooOld(
            f"the database was set up by a release that works with version {stamp.oldest} of its documents or later, "
            f"and this process knows version {VERSION}: run a newer release"
        )


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


JOBS_TOPIC = "carillon_jobs"
MESSAGES_TOPIC = "carillon_messages"
SCHEDULES_TOPIC = "carillon_schedules"


class OwnEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An unpublished event about a thing of an app or of a namespace. `path` is that of the thing in the API; `data` is
    sent as JSON. The store sets `stored_at`, by the database's clock."""

    id: str
    topic: str
    type: str
    path: str
    app_id: str = ""
    namespace: str = ""
    data: dict[str, Any]
    stored_at: datetime = EPOCH


def without_empty(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact not in ("", None)}
