"""What actors ask of the servers and of chance: one value each, and what comes back.

Writes are in `world.py`, because one may reach the database long after its sender gave up on it.
"""

from typing import NamedTuple

from shared.domain.jobs.batches import BatchStatus
from tests.domain.protocol.world import Message, Piece

UNSETTLED = (BatchStatus.PLANNED, BatchStatus.QUEUED, BatchStatus.SENDING)

OK = "ok"
FENCED = "fenced"  # Kafka says that this lane has a successor
REFUSED = "refused"  # Kafka does not want a record
SILENCE = "silence"  # no reply: it happened, or did not, or will


class Deliver(NamedTuple):
    """Wait for a message; the reply is the message and the lane to use."""

    queue: str


class Ack(NamedTuple):
    """Done with the message."""


class Requeue(NamedTuple):
    """The message back into the queue."""


class Publish(NamedTuple):
    """A message onto the broker."""

    message: Message


class ReadJob(NamedTuple):
    """The job's status."""


class Read(NamedTuple):
    """A batch."""

    ordinal: int


class Lowest(NamedTuple):
    """(ordinal, batch) of the chain's lowest one in these statuses, or None."""

    slot: int
    statuses: tuple[BatchStatus, ...] = UNSETTLED


class ReadLast(NamedTuple):
    """(ordinal, entry) of the plan's last entry; ordinal -1 where there is none."""


class Done(NamedTuple):
    """Whether the plan has its end and all batches are settled."""


class Cut(NamedTuple):
    """A page of the audience behind this device, as entries; rows come and go, so two cuts may differ."""

    after: int


class Fence(NamedTuple):
    """Start a producer with this id: abort what is open, fail what it tries later."""

    lane: str


class ReadMarker(NamedTuple):
    """(ordinal, part, receipt) of the slot's marker, None, or SILENCE."""

    slot: int


class Start(NamedTuple):
    """Start the own lane."""


class Append(NamedTuple):
    """Into the lane's transaction."""

    piece: Piece


class Commit(NamedTuple):
    """The lane's transaction."""


class Abort(NamedTuple):
    """The lane's transaction."""


class Chore(NamedTuple):
    """Upkeep's look-out: something that may need doing, and where."""


class Click(NamedTuple):
    """A user's decision: the status wanted."""
