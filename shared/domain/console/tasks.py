"""The task of the console: a bulk action."""

from typing import ClassVar

from shared.domain.tasks import Task

BULK_QUEUE = "ops.bulk"


class RunBulkAction(Task, frozen=True, tag="bulk"):
    """Continue a bulk action from its present state, which its document describes."""

    queue: ClassVar[str] = BULK_QUEUE
    action_id: str
