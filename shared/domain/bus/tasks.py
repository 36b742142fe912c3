"""The tasks of the bus: look at a queue, and deliver what is due of it; and go on with a replay."""

from typing import ClassVar

from shared.domain.tasks import Task

DELIVER_QUEUE = "bus.deliver"
SLOW_QUEUE = "bus.slow"
REPLAY_QUEUE = "bus.replay"


class DeliverQueue(Task, frozen=True, tag="deliver"):
    """Look at this wake-up, if it still has this token. Its tries are counted in its occurrence."""

    queue: ClassVar[str] = DELIVER_QUEUE
    wake_up_id: str
    token: str

    @property
    def about(self) -> str:
        return self.wake_up_id


class DeliverSlowly(DeliverQueue, frozen=True, tag="deliver-slowly"):
    """The same for a receiver that takes long or fails: its work waits apart from the others'."""

    queue: ClassVar[str] = SLOW_QUEUE


class RunReplay(Task, frozen=True, tag="replay"):
    """Go on with a replay, from wherever it stands. Its document says what is to be brought."""

    queue: ClassVar[str] = REPLAY_QUEUE
    replay_id: str
