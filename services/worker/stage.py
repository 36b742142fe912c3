"""Stages: what workers do with one kind of task."""

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
        """Do the task. Raises `Unavailable` and `LaneLost` when it must be done again."""

    async def run_again(self, task: AnyTask) -> None:
        """Do a task that the broker delivers again: the worker that had it is dead, or has lost its connection."""
        await self.run(task)

    @abstractmethod
    async def put_off(self, task: AnyTask) -> None:
        """See that the work comes back later as this task, which counts the tries. Raises `Unavailable`."""

    @abstractmethod
    async def give_up(self, task: AnyTask, reason: str) -> None:
        """End the work that the task stands for: it fails by a fault of ours, whoever tries."""

    def stop(self) -> None:
        """Bring long work to an end soon: the process stops."""

    async def close(self) -> None:
        """Let go of what the stage holds, when none of its tasks goes on any more."""
