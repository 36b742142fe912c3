"""What happens to a job: the events that stand in it, and the mails that are due about it."""

from enum import StrEnum

from msgspec import Struct

# The stages have Marathon's names.
READ_FILE = "csv_split_worker"
PLAN = "create_batches_worker"
SEND = "process_batch_worker"
SEND_ENDED = "process_batche_worker"  # as Marathon writes it where it went well
SEND_DIRECT = "direct_worker"
FINISH = "job_completed_worker"


class EventState(StrEnum):
    """How a stage of a job fares."""

    RUNNING = "running"
    SUCCESS = "success"
    FAIL = "fail"


class Event(Struct, frozen=True):
    """Something that happened to a job, at this time in ns since the epoch. The stages have Marathon's names."""

    stage: str
    state: EventState
    message: str
    at: int


class DueMail(Struct, frozen=True):
    """A mail that is still to be sent: its kind (`shared.domain.jobs.mails`), when what it tells happened (ns), and who
    did it."""

    kind: str
    at: int
    by: str = ""
