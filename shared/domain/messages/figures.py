"""How a job that sends messages stands, counted from its ledger, and when its messages will leave.

A planned message that stands nowhere in the ledger is `unsent`. So the states always add up to what is planned.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import assert_never

from msgspec import Struct

from shared.domain.jobs.batches import Receipt
from shared.domain.jobs.jobs import Job, JobStatus
from shared.domain.messages.batches import receipt_of_states
from shared.domain.messages.ledger import REPEATED, MessageState

_REASONS = "reasons."
_COUNTED = tuple(state for state in MessageState if state is not MessageState.UNSENT)


class MessageCounts(Struct, frozen=True, kw_only=True):
    """The messages of a job: so many are `planned`, and the tally of the ledger at the same moment, in this `round` of
    the job. `duplicates` are rows that repeat one before them; they are not planned."""

    planned: int = 0
    duplicates: int = 0
    tally: dict[str, int] = {}
    round: int = 0

    @property
    def by_state(self) -> dict[str, int]:
        """How many stand in each state, but for `unsent`."""
        return {state.value: self.tally.get(state.value, 0) for state in _COUNTED}

    @property
    def unsent(self) -> int:
        """How many nobody has called."""
        return max(self.planned - sum(self.by_state.values()), 0)

    @property
    def repeated(self) -> int:
        """How many second calls there were of messages whose first one may have succeeded."""
        return self.tally.get(REPEATED, 0)

    @property
    def reasons(self) -> dict[str, int]:
        """Why messages stand where they stand."""
        found = {name.removeprefix(_REASONS): count for name, count in self.tally.items() if name.startswith(_REASONS)}
        return {reason: count for reason, count in found.items() if count}

    @property
    def receipt(self) -> Receipt:
        """The same in the words of all jobs. It accounts for all messages but `unsent` and `sending` ones."""
        return receipt_of_states(self.by_state, self.reasons)


class Ahead(Struct, frozen=True):
    """The work before a job, or beside it: so many `jobs` with so many unsent `messages`, and the `rate` that is left
    for the job, in messages a second; 0 where its credential does not send."""

    jobs: int = 0
    messages: int = 0
    rate: float = 0.0


class Forecast(Struct, frozen=True):
    """When a job begins to send, in seconds, and when it ends; `None` where nobody can tell. So many messages of so
    many jobs go first."""

    jobs: int = 0
    messages: int = 0
    starts_in: float | None = None
    ends_at: datetime | None = None


def counted_states() -> Sequence[str]:
    """The names of the states of messages in a tally; those that are `unsent` are counted nowhere."""
    return [state.value for state in _COUNTED]


def moves_on(job: Job) -> bool:
    """Whether the job sends, or will by itself."""
    match job.status:
        case JobStatus.SCHEDULED | JobStatus.RUNNING:
            return job.open
        case JobStatus.PAUSED | JobStatus.TRIPPED | JobStatus.STOPPED | JobStatus.COMPLETED:
            return False
        case _:
            assert_never(job.status)


def forecast(job: Job, counts: MessageCounts, ahead: Ahead, *, now: datetime) -> Forecast:
    """When the job begins and ends, if all goes on as it does now."""
    if not moves_on(job):
        return Forecast()
    if ahead.rate <= 0:
        return Forecast(ahead.jobs, ahead.messages)
    until_start = max((job.starts - now).total_seconds(), 0.0) if job.waits else 0.0
    starts_in = round(max(ahead.messages / ahead.rate, until_start), 1)
    ends_at = None
    if job.plan.end is not None and counts.unsent:
        ends_at = now + timedelta(seconds=starts_in + counts.unsent / ahead.rate)
    return Forecast(ahead.jobs, ahead.messages, starts_in, ends_at)


def share_of(own: int, others: Mapping[str, int]) -> float:
    """The part of a credential's rate that a job with this share gets beside the others."""
    return own / (own + sum(others.values()))
