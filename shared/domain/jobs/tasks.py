"""The tasks of a job: planning it, sending its batches, closing it, and mailing."""

from typing import ClassVar

from shared.domain.tasks import RetriedTask

SPLIT_QUEUE = "push.split"
BATCH_QUEUE = "push.batch"
FINISH_QUEUE = "push.finish"
MAIL_QUEUE = "push.mail"


class PlanJob(RetriedTask, frozen=True, tag="plan"):
    """Cut the job's audience into batches, from the present state of the plan."""

    queue: ClassVar[str] = SPLIT_QUEUE
    job_id: str


class SendBatch(RetriedTask, frozen=True, tag="send"):
    """Complete one batch, if it still has this turn."""

    queue: ClassVar[str] = BATCH_QUEUE
    job_id: str
    ordinal: int
    turn: int


class FinishJob(RetriedTask, frozen=True, tag="finish"):
    """Sum up and close a job whose batches are all settled."""

    queue: ClassVar[str] = FINISH_QUEUE
    job_id: str


class SendMail(RetriedTask, frozen=True, tag="mail"):
    """Send the mail of this kind about the move of the job at this time (ns), if it is still due."""

    queue: ClassVar[str] = MAIL_QUEUE
    job_id: str
    kind: str
    at: int


JobTask = PlanJob | SendBatch | FinishJob | SendMail
