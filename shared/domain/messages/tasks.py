"""The tasks of messages: sending batches of jobs, and single messages."""

from typing import ClassVar

from shared.domain.jobs.tasks import SendBatch
from shared.domain.tasks import RetriedTask

MESSAGE_QUEUE = "message.batch"
SINGLE_QUEUE = "message.single"


class SendMessages(SendBatch, frozen=True, tag="messages"):
    """Send the open messages of a batch by its job's credential, if it still has this turn."""

    queue: ClassVar[str] = MESSAGE_QUEUE


class SendSingles(RetriedTask, frozen=True, tag="singles"):
    queue: ClassVar[str] = SINGLE_QUEUE
    credential_id: str
