"""What a process does to the world, a step at a time.

A capability of the model does nothing by itself: it hands what it would do to a gate, which decides when that happens,
and whether it does.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Action = Callable[[], Coroutine[Any, Any, Any]]


class Gate(Protocol):
    """What stands between a process and the world."""

    async def take(self, step: str, action: Action, *about: object) -> Any:
        """Do it when its time comes. Raises `Unavailable` where nobody answers: it may have happened, or may yet."""

    def strikes(self, trouble: str) -> bool:
        """Whether this trouble comes now."""


class AtOnce:
    """The gate of a world without trouble."""

    async def take(self, step: str, action: Action, *about: object) -> Any:
        return await action()

    def strikes(self, trouble: str) -> bool:
        return False


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run what waits for nobody to its end."""
    while True:
        try:
            awaited = work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        if awaited is not None:
            raise AssertionError(f"a step waits for {awaited}")
