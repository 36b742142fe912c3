"""The queues of all tasks."""

from shared.domain.clock.tasks import CALL_QUEUE
from shared.domain.jobs.tasks import BATCH_QUEUE, FINISH_QUEUE, MAIL_QUEUE, SPLIT_QUEUE

QUEUES = (SPLIT_QUEUE, BATCH_QUEUE, FINISH_QUEUE, MAIL_QUEUE, CALL_QUEUE)
