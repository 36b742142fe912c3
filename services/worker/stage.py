"""Stages: the work on one kind of task."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from shared.domain.tasks import Task

AnyTask = TypeVar("AnyTask", bound=Task)


class Stage(ABC, Generic[AnyTask]):
    """The work on the tasks of the kind `task`, `in_flight` of them at a time in one process."""

    task: ClassVar[type[Any]]
    in_flight: int

    @abstractmethod
    async def run(self, task: AnyTask) -> None:
        """Do the task. After `Unavailable` or `LaneLost` it is done again."""

    async def run_again(self, task: AnyTask) -> None:
        """Do a task that the broker delivers again: its worker is dead, or has lost its connection."""
        await self.run(task)

    @abstractmethod
    async def put_off(self, task: AnyTask) -> None:
        """Let the work come back later as this task, which counts the tries."""

    @abstractmethod
    async def give_up(self, task: AnyTask, reason: str) -> None:
        """End the work of this task after repeated internal errors."""

    def stop(self) -> None:
        """End long work soon, because the process stops."""

    async def close(self) -> None:
        """Release the resources of the stage, after its last task."""
