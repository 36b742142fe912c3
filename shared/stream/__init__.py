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
from shared.stream.reading import Positions, Reader


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


class Stream(Protocol):
    """Exactly-once sending, plain publishing, delivering users' messages, and reading."""

    delivers: bool
    """Whether users have topics here at all; where they have none, every message is `Undeliverable`."""

    async def setup(self, topics: Mapping[str, int]) -> None:
        """Make the ledger and these topics (name to partitions), idempotently (`carillon init`). Raises
        `Unavailable`."""

    async def verify(self) -> None:
        """Raise `Unavailable` unless the server is one whose promises we know and `setup` has been done."""

    def lane(self) -> AbstractAsyncContextManager[Lane]:
        """Borrow a lane, waiting for a free one; a lost one is replaced. Raises `Unavailable` when none can be
        started."""

    async def recover(self, batch: Batch) -> BatchPart | None:
        """Fence `batch.owner`, then tell what it sent of the batch: the part behind those that are known to be out, or
        `None` for nothing, for ever.

        Raises `Unavailable` when that cannot be known now.
        """

    async def publish(self, topic: str, values: Sequence[bytes]) -> None:
        """Append records outside of any transaction, acknowledged by all replicas. Raises `Unavailable`."""

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

    async def ping(self) -> None:
        """Raise `Unavailable` when the server does not answer."""

    async def close(self) -> None:
        """End lanes and connections."""
