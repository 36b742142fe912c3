"""The tasks of messages: sending the batches of jobs, and single messages."""

from typing import ClassVar

from shared.domain.jobs.tasks import SendBatch
from shared.domain.tasks import RetriedTask

MESSAGE_QUEUE = "message.batch"
SINGLE_QUEUE = "message.single"


class SendMessages(SendBatch, frozen=True, tag="messages"):
    """Send what is to be sent of a batch by its job's credential, if it still has this turn."""

    queue: ClassVar[str] = MESSAGE_QUEUE


class SendSingles(RetriedTask, frozen=True, tag="singles"):
    """Send the single messages of a credential that are due."""

    queue: ClassVar[str] = SINGLE_QUEUE
    credential_id: str
