"""The stream takes the records of a job's batches, each exactly once, and returns the receivers' events. It also
delivers users' messages to their topics, outside of transactions and at least once.

A batch goes out like this (the modules here have the reasons and the measurements):

- A batch goes out in one **part** or several. A **lane** sends one part at a time: its records and its receipt
  (`shared.jobs.rules.batches.BatchPart`) become visible together, or not at all. A lane's id is random and never used
  again. Any process that knows the id can **fence** the lane: this aborts its open transaction and makes every later
  commit fail.
- `Stream.recover(batch)` fences the batch's owner and then returns the part after `batch.parts` if it went out, else
  `None`. The answer is final: after `None`, no process can make this attempt visible.
- `Lane.produce` ends in one of three ways: it returns (the commit is confirmed), raises `Aborted` (nothing is out and
  nothing will be), or raises `LaneLost` (the outcome is unknown; only `recover` can find it, and the lane is not used
  again).
- A batch that a lane has taken is handed to `produce` at most once per take.

Every implementation passes `tests/drivers/kafka`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

from shared.clock.rules.callbacks import DeliveryError, TopicMessage
from shared.core.errors import CarillonError
from shared.drivers.kafka.reading import Positions, Ranges, Reader
from shared.jobs.rules.batches import Batch, BatchPart


class Aborted(CarillonError):
    """The transaction was certainly rolled back. Borrow another lane for the next attempt.

    `final` means that the records were refused and will be refused again; otherwise the server was not fit.
    """

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final


class Lane(Protocol):
    """A sender of transactions that serves one batch at a time."""

    id: str

    async def produce(self, batch: Batch, topic: str, records: Sequence[bytes], part: BatchPart) -> None:
        """Commit the records and the batch's next part in one transaction. Raises `Aborted` if nothing went out, for
        certain; `LaneLost` if the outcome is unknown."""


class TopicSpec(Struct, frozen=True):
    """How Carillon creates a topic. Records are kept for at least `retention`; `None` leaves that to the server."""

    partitions: int
    retention: timedelta | None = None


NO_TOPICS: Mapping[str, TopicSpec] = MappingProxyType({})


class LateRecords(Struct, frozen=True):
    """Records that are not acknowledged yet; `places` are their indexes in the call. `done` ends after the
    acknowledgement; if it raises `Unavailable`, the outcome is unknown."""

    places: Sequence[int]
    done: asyncio.Future[None]


class Stream(Ranges, Protocol):
    delivers: bool
    """Whether users have topics here. If false, every message is `Undeliverable`."""

    async def setup(self, topics: Mapping[str, int | TopicSpec]) -> None:
        """Make the ledger and the missing topics (name to partitions or specification); `carillon init` calls this."""

    async def verify(self, topics: Mapping[str, TopicSpec] = NO_TOPICS) -> None:
        """Check the server's version, that `setup` has run, and the partitions and retention of these topics."""

    def lane(self) -> AbstractAsyncContextManager[Lane]:
        """Borrow a lane; wait for a free one. A lost lane is replaced."""

    async def recover(self, batch: Batch) -> BatchPart | None:
        """Fence `batch.owner`, then return the part after `batch.parts` if it went out. `None` is final: it never
        will."""

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        """Append records outside of any transaction, acknowledged by all replicas.

        With `keys`, one per value, a record goes to the partition that Kafka's own producers choose for its key.
        Records of one key keep the order in which callers handed them over, within a call and across calls that follow
        each other. A record that is sent again after a network fault or a change of leaders keeps its place. Only a
        record that was never acknowledged may come late, or not at all.

        Raises:
            Unavailable: it is unknown which records were appended.
            ValueError: the numbers of keys and values differ; nothing is appended.
        """

    async def append(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes], *, patience_seconds: float, seconds: float
    ) -> Sequence[LateRecords]:
        """Publish, but let no partition hold up another. Return the records that are not acknowledged after
        `patience_seconds`. A call waits at most `seconds` for a connection or behind the records of earlier calls."""

    async def deliver(self, messages: Sequence[TopicMessage]) -> list[DeliveryError | None]:
        """Append at most 1,000 messages of users, and return each one's outcome, in their order. Never raises.

        `None` means that all replicas in sync have the message. A key goes to the partition that Kafka's own producers
        choose for it. A missing topic is not created. All messages share one deadline; the outcome of one does not
        change another's.
        """

    def reader(
        self, pattern: str, *, group: str, positions: Positions | None = None
    ) -> AbstractAsyncContextManager[Reader]:
        """Join a group on all present and future topics whose whole name matches the pattern."""

    async def spans(self, topic: str) -> Mapping[str, tuple[int, int]]:
        """Return the first offset of each partition (`topic/number`), and the offset after its last record."""

    async def ping(self) -> None: ...

    async def close(self) -> None: ...


def as_spec(topic: int | TopicSpec) -> TopicSpec:
    return topic if isinstance(topic, TopicSpec) else TopicSpec(topic)


def check_keys(values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
    if keys is not None and len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys for {len(values)} values")
