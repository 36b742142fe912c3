"""The task of the console: a bulk action."""

from typing import ClassVar

from shared.domain.tasks import Task

BULK_QUEUE = "ops.bulk"


class RunBulkAction(Task, frozen=True, tag="bulk"):
    """Go on with a bulk action, from wherever it stands. Its document says what is to be done."""

    queue: ClassVar[str] = BULK_QUEUE
    action_id: str
