"""Events of a job with who caused them, the mails that are due about it, and the milestones that schedulers have yet to
report.
"""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

# The stages have Marathon's names.
READ_FILE = "csv_split_worker"
PLAN = "create_batches_worker"
SEND = "process_batch_worker"
SEND_ENDED = "process_batche_worker"  # as Marathon writes it where it went well
SEND_DIRECT = "direct_worker"
FINISH = "job_completed_worker"
# What users do; Marathon has no names for it.
PAUSE = "job_paused"
RESUME = "job_resumed"
STOP = "job_stopped"


class EventState(StrEnum):
    """How a stage of a job fares."""

    RUNNING = "running"
    SUCCESS = "success"
    FAIL = "fail"


class Doer(Struct, frozen=True):
    """The doer of an act on a job: a `user`, a `token`, or `system`, which is Carillon by itself."""

    kind: str
    name: str

    @property
    def asks(self) -> bool:
        """Whether somebody has asked for it."""
        return self != BY_ITSELF


BY_ITSELF = Doer("system", "carillon")


class Event(Struct, frozen=True):
    """Something that happened to a job, at this time in ns since the epoch, and who did it: `None` where a process of
    release 0.1.0 has written it."""

    stage: str
    state: EventState
    message: str
    at: int
    by: Doer | None = BY_ITSELF


class DueMail(Struct, frozen=True):
    """A mail that is still to be sent: its kind (`shared.domain.jobs.mails`), when what it tells happened (ns), and who
    did it."""

    kind: str
    at: int
    by: str = ""


class Milestone(Struct, frozen=True):
    """A move of a job that schedulers have yet to report to the audit and the bus: the act (`job.trip`), when by the
    database's clock, in which role of a process, and why. A caller `asked` for it, or Carillon did it by itself. The
    move itself stores it in the job's document."""

    act: str
    at: datetime
    role: str
    reason: str = ""
    asked: bool = False


TRIP = "job.trip"
COMPLETE = "job.complete"
STOP_ACT = "job.stop"


def events_of(stage: str, at: int, by: Doer, failure: str = "") -> list[Event]:
    """The events of a move: a failure, or what a caller asked for; Carillon's own moves have none."""
    if failure:
        return [Event(stage, EventState.FAIL, failure, at)]
    return [Event(stage, EventState.SUCCESS, "", at, by)] if by.asks else []


def stop_of(at: datetime, role: str, by: Doer = BY_ITSELF, failure: str = "") -> Milestone:
    """The milestone of a job that is stopped, by a caller or over a `failure`."""
    return Milestone(STOP_ACT, at, role, failure, asked=by.asks)
