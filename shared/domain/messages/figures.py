"""The figures of a message job from its ledger, and the forecast of its messages.

A planned message without an entry in the ledger is `unsent`, so the states always add up to the planned messages.
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
    """The messages of a job: the `planned` ones, and the ledger's tally at the same moment, in this `round` of the job.
    `duplicates` are rows that repeat an earlier one; they are not planned."""

    planned: int = 0
    duplicates: int = 0
    tally: dict[str, int] = {}
    round: int = 0

    @property
    def by_state(self) -> dict[str, int]:
        """The counts of all states but `unsent`."""
        return {state.value: self.tally.get(state.value, 0) for state in _COUNTED}

    @property
    def unsent(self) -> int:
        return max(self.planned - sum(self.by_state.values()), 0)

    @property
    def repeated(self) -> int:
        return self.tally.get(REPEATED, 0)

    @property
    def reasons(self) -> dict[str, int]:
        found = {name.removeprefix(_REASONS): count for name, count in self.tally.items() if name.startswith(_REASONS)}
        return {reason: count for reason, count in found.items() if count}

    @property
    def receipt(self) -> Receipt:
        """The same in the words of all jobs, without `unsent` and `sending` messages."""
        return receipt_of_states(self.by_state, self.reasons)


class Ahead(Struct, frozen=True):
    """The `jobs` before or beside a job, their unsent `messages`, and the `rate` left for the job in messages a second;
    0 if its credential does not send."""

    jobs: int = 0
    messages: int = 0
    rate: float = 0.0


class Forecast(Struct, frozen=True):
    """The seconds until a job sends, and the time of its end; `None` if unknown. `messages` of `jobs` go first."""

    jobs: int = 0
    messages: int = 0
    starts_in: float | None = None
    ends_at: datetime | None = None


def counted_states() -> Sequence[str]:
    """The names of the states in a tally; `unsent` is not counted."""
    return [state.value for state in _COUNTED]


def moves_on(job: Job) -> bool:
    match job.status:
        case JobStatus.SCHEDULED | JobStatus.RUNNING:
            return job.open
        case JobStatus.PAUSED | JobStatus.TRIPPED | JobStatus.STOPPED | JobStatus.COMPLETED:
            return False
        case _:
            assert_never(job.status)


def forecast(job: Job, counts: MessageCounts, ahead: Ahead, *, now: datetime) -> Forecast:
    """The start and end of the job at the present rate."""
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
    """The part of a credential's rate for a job with the share `own` beside the others."""
    return own / (own + sum(others.values()))
