"""Events of a job with their doers and in words, its due mails, and the milestones that are not yet reported."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

# The stages have Marathon's names.
READ_FILE = "csv_split_worker"
PLAN = "create_batches_worker"
SEND = "process_batch_worker"
SEND_ENDED = "process_batche_worker"  # Marathon's spelling for success
SEND_DIRECT = "direct_worker"
FINISH = "job_completed_worker"
# Acts of users, for which Marathon has no names.
PAUSE = "job_paused"
RESUME = "job_resumed"
STOP = "job_stopped"


class EventState(StrEnum):
    RUNNING = "running"
    SUCCESS = "success"
    FAIL = "fail"


class Doer(Struct, frozen=True):
    """The doer of an act on a job: a `user`, a `token`, or `system` for Carillon itself."""

    kind: str
    name: str

    @property
    def asks(self) -> bool:
        return self != BY_ITSELF


BY_ITSELF = Doer("system", "carillon")


class Event(Struct, frozen=True):
    """An event of a job, at this time in ns since the epoch, with its doer."""

    stage: str
    state: EventState
    message: str
    at: int
    by: Doer = BY_ITSELF


class DueMail(Struct, frozen=True):
    """A mail to be sent: its kind (`shared.jobs.rules.mails`), the time of its occasion (ns), and the doer."""

    kind: str
    at: int
    by: str = ""


class Milestone(Struct, frozen=True):
    """A move of a job that schedulers have yet to report to the audit and the bus: the act (`job.trip`), the time by
    the database's clock, the role of the process, and the reason. `asked`: a caller asked for it. The move itself
    stores it in the job's document."""

    act: str
    at: datetime
    role: str
    reason: str = ""
    asked: bool = False


TRIP = "job.trip"
COMPLETE = "job.complete"
STOP_ACT = "job.stop"


def events_of(stage: str, at: int, by: Doer, failure: str = "") -> list[Event]:
    """The events of a move: a failure, or a caller's act; Carillon's own moves have none."""
    if failure:
        return [Event(stage, EventState.FAIL, failure, at)]
    return [Event(stage, EventState.SUCCESS, "", at, by)] if by.asks else []


def stop_of(at: datetime, role: str, by: Doer = BY_ITSELF, failure: str = "") -> Milestone:
    return Milestone(STOP_ACT, at, role, failure, asked=by.asks)


SILENT = frozenset({"starting", "finished", "Finished all batches"})
"""Messages that only repeat the label of their event."""
_LABELS = {
    READ_FILE: "File read",
    PLAN: "Audience split into batches",
    SEND: "Sending",
    SEND_ENDED: "All batches done",
    SEND_DIRECT: "Sending",
    FINISH: "Closed",
    PAUSE: "Paused",
    RESUME: "Resumed",
    STOP: "Stopped",
    "job_retried": "Retried",
}
_BEGUN = {READ_FILE: "Reading the file", PLAN: "Splitting the audience into batches"}
_FAILED = {
    READ_FILE: "The file could not be read",
    PLAN: "The audience could not be split",
    SEND: "It failed",
    SEND_DIRECT: "It could not be sent",
    FINISH: "The control group's file could not be written",
}


def label_of(stage: str, state: str) -> str:
    words = {EventState.FAIL: _FAILED, EventState.RUNNING: _BEGUN}.get(EventState(state), _LABELS)
    return words.get(stage) or _LABELS.get(stage, stage)


def per_unit(per_second: float) -> tuple[float, str]:
    """A rate for people: its number in the shortest of a second, a minute and an hour that has at least one."""
    for seconds, unit in ((1, "second"), (60, "minute")):
        if per_second * seconds >= 1 or not per_second:
            return per_second * seconds, unit
    return per_second * 3_600, "hour"
