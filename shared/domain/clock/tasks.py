"""The task of the clock: an HTTP call."""

from typing import ClassVar

from shared.domain.tasks import Task

CALL_QUEUE = "sched.call"


class CallTarget(Task, frozen=True, tag="call"):
    """Make the HTTP call of an occurrence, if it still has this token. The occurrence counts the tries.

    Its `namespace` and `host` decide its turn. Tasks without these share their turns.
    """

    queue: ClassVar[str] = CALL_QUEUE
    occurrence_id: str
    token: str
    namespace: str = ""
    host: str = ""

    @property
    def about(self) -> str:
        return self.occurrence_id
