"""The tasks of the bus: delivering from a queue, and running a replay."""

from typing import ClassVar

from shared.domain.tasks import Task

DELIVER_QUEUE = "bus.deliver"
SLOW_QUEUE = "bus.slow"
REPLAY_QUEUE = "bus.replay"


class DeliverQueue(Task, frozen=True, tag="deliver"):
    """Look at this wake-up, if it still has this token. Its occurrence counts the tries."""

    queue: ClassVar[str] = DELIVER_QUEUE
    wake_up_id: str
    token: str

    @property
    def about(self) -> str:
        return self.wake_up_id


class DeliverSlowly(DeliverQueue, frozen=True, tag="deliver-slowly"):
    """The same for a slow or failing receiver, whose work waits in a separate queue."""

    queue: ClassVar[str] = SLOW_QUEUE


class RunReplay(Task, frozen=True, tag="replay"):
    """Continue a replay from its present state, which its document describes."""

    queue: ClassVar[str] = REPLAY_QUEUE
    replay_id: str
