"""Walks: one operation of one process each, stopped in front of any of its steps on the store or the target.

A walk takes as many steps as it is allowed and then stands still, while others go on. From there it wakes up late, or
its process dies, or the server that it asks does not answer (before or after it has done what was asked).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Any, cast

from shared.core.errors import Unavailable
from shared.store import Store

ALL = 1_000_000
_COLLECTIONS = ("schedules", "occurrences", "outcomes", "dead_letters", "outbox", "calendars")

Before = Callable[[str, Any], Awaitable[None]]
After = Callable[[str], Awaitable[None]]


class Fate(Enum):
    """What becomes of a walk at the step at which it stands."""

    GOES_ON = "goes on"
    SLEEPS = "sleeps"
    DIES = "dies"
    UNASKED = "the server cannot be reached"
    UNANSWERED = "the server has done it and does not answer"


class Walk:
    """One operation under way. `told` are its steps so far, each with its place in the order of all steps."""

    def __init__(self, name: str, process: str, count: Callable[[], int]) -> None:
        self.name = name
        self.process = process
        self.told: list[tuple[int, str]] = []
        self.began = count()
        self.ended: int | None = None
        self.interrupted = False
        self.died = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._count = count
        self._allowed = 0
        self._trouble = Fate.GOES_ON
        self._stopped = asyncio.Event()
        self._goes_on = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None

    def start(self, operation: Callable[["Walk"], Coroutine[Any, Any, Any]]) -> None:
        """Begin; it stands in front of its first step."""
        self._task = asyncio.get_running_loop().create_task(operation(self))

    async def go(self, steps: int, fate: Fate) -> None:
        """Take so many steps, or all that there are, and meet this fate if there is another one."""
        while True:
            await self._walk(steps)
            if self.over:
                return
            self.interrupted = True
            match fate:
                case Fate.GOES_ON:
                    steps = ALL
                case Fate.SLEEPS:
                    return
                case Fate.DIES:
                    await self.die()
                    return
                case Fate.UNASKED | Fate.UNANSWERED:
                    self._trouble = fate
                    steps, fate = ALL, Fate.GOES_ON

    async def die(self) -> None:
        """Its process is gone."""
        assert self._task is not None
        if not self.over:
            self.died = True
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self.ended = self._count()

    @property
    def over(self) -> bool:
        """Whether it has come to its end, good or bad."""
        return self.ended is not None

    @property
    def smooth(self) -> bool:
        """Whether it came to a good end in one go."""
        return self.over and not self.interrupted and self.error is None

    def at(self, step: str) -> int | None:
        """When it took this step for the first time."""
        return next((place for place, told in self.told if told == step), None)

    async def stepped(self, name: str, action: Callable[[], Awaitable[Any]]) -> Any:
        """Take a step as soon as it is allowed."""
        while self._allowed == 0:
            self._stopped.set()
            await self._goes_on.wait()
            self._goes_on.clear()
        self._allowed -= 1
        trouble, self._trouble = self._trouble, Fate.GOES_ON
        if trouble is Fate.UNASKED:
            raise Unavailable(f"{name}: nobody there")
        self.told.append((self._count(), name))
        result = await action()
        if trouble is Fate.UNANSWERED:
            raise Unavailable(f"{name}: no answer")
        return result

    async def _walk(self, steps: int) -> None:
        assert self._task is not None
        self._allowed = steps
        self._stopped.clear()
        self._goes_on.set()
        stop = asyncio.get_running_loop().create_task(self._stopped.wait())
        await asyncio.wait({stop, self._task}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if self._task.done():
            self.ended = self._count()
            self.error = self._task.exception()
            self.result = None if self.error else self._task.result()


class _Gated:
    """A collection, each call of which is a step of the walk."""

    def __init__(self, name: str, real: object, walk: Walk, before: Before, after: After) -> None:
        self._name = name
        self._real = real
        self._walk = walk
        self._before = before
        self._after = after

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        step = f"{self._name}.{verb}"

        async def call(*args: Any, **named: Any) -> Any:
            async def action() -> Any:
                await self._before(step, args[0] if args else None)
                result = await getattr(self._real, verb)(*args, **named)
                await self._after(step)
                return result

            return await self._walk.stepped(step, action)

        return call


class _GatedStore:
    def __init__(self, store: Store, walk: Walk, before: Before, after: After) -> None:
        for name in _COLLECTIONS:
            setattr(self, name, _Gated(name, getattr(store, name), walk, before, after))


def gated(store: Store, walk: Walk, before: Before, after: After) -> Store:
    """The store as this walk sees it. `before` hears of each step that is taken, with its first argument, and `after`
    when it has been taken."""
    return cast("Store", _GatedStore(store, walk, before, after))
