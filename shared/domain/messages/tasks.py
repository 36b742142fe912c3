"""The tasks of messages: sending the batches of jobs."""

from typing import ClassVar

from shared.domain.jobs.tasks import SendBatch

MESSAGE_QUEUE = "message.batch"


class SendMessages(SendBatch, frozen=True, tag="messages"):
    """Send what is to be sent of a batch by its job's credential, if it still has this turn."""

    queue: ClassVar[str] = MESSAGE_QUEUE
