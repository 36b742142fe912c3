"""The stream takes the records of jobs, exactly once a batch, and gives back what the receivers say about them. It
delivers users' messages too, as the callbacks of their schedules: those outside of any transaction, at least once.

How a batch goes out (the reasons and the measurements are in `shared/stream/kafka/`):

- A batch goes out in one **part** or several. A **lane** sends one part at a time: its records and what it says of
  itself (`shared.domain.jobs.batches.BatchPart`) become visible together, or not at all. A lane's id is random and
  never used again, so whoever knows the id can **fence** the lane: abort what it has open and make every later commit
  of it fail.
- `Stream.recover(batch)` fences the batch's owner and then tells whether the part behind `batch.parts` went out: that
  part, or `None`. The answer is final: after `None`, no process can ever make this attempt visible.
- `Lane.produce` ends in one of three ways: it returns (confirmed commit), raises `Aborted` (confirmed: nothing is out
  and nothing will be), or raises `LaneLost` (nobody knows; only `recover` can tell, and the lane is never used again).
- A batch that is marked as taken by a lane is handed to `produce` at most once per take.

Every implementation passes `tests/stream`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from shared.domain.clock.deliveries import Outcome, TopicMessage
from shared.domain.errors import CarillonError
from shared.domain.jobs.batches import Batch, BatchPart
from shared.stream.reading import Positions, Ranges, Reader
from shared.stream.topics import NO_TOPICS, LateRecords, TopicSpec, as_spec, check_keys

__all__ = ["NO_TOPICS", "Aborted", "Lane", "LateRecords", "Stream", "TopicSpec", "as_spec", "check_keys"]


class Aborted(CarillonError):
    """The transaction was rolled back, and that is certain. Borrow another lane for the next attempt.

    `final` tells that the records themselves were refused and will be again; otherwise the server was not fit.
    """

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final


class Lane(Protocol):
    """One transactional sender, in one batch's hands at a time."""

    id: str

    async def produce(self, batch: Batch, topic: str, records: Sequence[bytes], part: BatchPart) -> None:
        """Commit the records and the batch's next part as one.

        Raises:
            Aborted: nothing went out, for certain.
            LaneLost: the outcome is unknown.
        """


class Stream(Ranges, Protocol):
    """Exactly-once sending, plain publishing, delivering users' messages, and reading."""

    delivers: bool
    """Whether users have topics here at all; where they have none, every message is `Undeliverable`."""

    async def setup(self, topics: Mapping[str, int | TopicSpec]) -> None:
        """Make the ledger and these topics (name to partitions, or to all that is said of it), idempotently (`carillon
        init`). One that is there stays as it is. Raises `Unavailable`."""

    async def verify(self, topics: Mapping[str, TopicSpec] = NO_TOPICS) -> None:
        """Raise `Unavailable` unless the server is one whose promises we know, `setup` has been done, and these topics
        have their partitions and keep their records for long enough."""

    def lane(self) -> AbstractAsyncContextManager[Lane]:
        """Borrow a lane, waiting for a free one; a lost one is replaced. Raises `Unavailable` when none can be
        started."""

    async def recover(self, batch: Batch) -> BatchPart | None:
        """Fence `batch.owner`, then tell what it sent of the batch: the part behind those that are known to be out, or
        `None` for nothing, for ever.

        Raises `Unavailable` when that cannot be known now.
        """

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        """Append records outside of any transaction, acknowledged by all replicas.

        With `keys`, one for each value, a record goes to the partition that Kafka's own producers choose for its key.
        Records of one key lie in the order in which they were handed over, in one call or in one after the other's
        end; what is sent again after a fault of the network or a change of leaders keeps its place. Only what was
        never acknowledged may come late, or not at all.

        Raises:
            Unavailable: nobody knows which of them are there.
            ValueError: there is not one key for each value, and nothing is appended.
        """

    async def append(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes], *, patience_seconds: float, seconds: float
    ) -> Sequence[LateRecords]:
        """The same, of which one partition holds up no other: returns what is not acknowledged after this patience, or
        waits (for `seconds` at most) for a connection, or behind earlier calls' records. Raises as `publish` does."""

    async def deliver(self, messages: Sequence[TopicMessage]) -> list[Outcome]:
        """Append users' messages, up to 1,000 in one call, and tell what became of each, in their order. Never raises.

        `None` means that all replicas in sync have it. A key goes to the partition that Kafka's own producers choose
        for it. A topic that does not exist is not made. The deadline is one for all, and none of them changes what
        becomes of another.
        """

    def reader(
        self, pattern: str, *, group: str, positions: Positions | None = None
    ) -> AbstractAsyncContextManager[Reader]:
        """Join a group on all topics, present and future, whose whole name matches the pattern."""

    async def spans(self, topic: str) -> Mapping[str, tuple[int, int]]:
        """The beginning of each partition (`topic/number`), and its end: behind its last record. Raises
        `Unavailable`."""

    async def ping(self) -> None:
        """Raise `Unavailable` when the server does not answer."""

    async def close(self) -> None:
        """End lanes and connections."""
