"""The scheduler of the model: one choice at a time of what happens next, all of them drawn from one seed.

A process runs until each of its tasks waits: for a step that it wants to take, for a timer, or for another task. Then
one choice is made. A step is taken to its end, with nothing else running, and its reply is given or lost; or some
trouble comes; or, where nothing else can happen, time goes on to the next timer.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from enum import Enum
from random import Random
from typing import Any, Protocol

from msgspec import Struct

from shared.core.errors import Unavailable
from shared.drivers.rabbitmq.memory import MemorySubscription
from tests.models.simulated.loop import VirtualLoop
from tests.models.simulated.steps import Action, finish
from tests.models.simulated.trace import Trace

_running: ContextVar["Process | None"] = ContextVar("_running", default=None)

_SLEEPS = (1.0, 12.0, 40.0, 100.0)
_PACES = (0.02, 1.0, 1.0)
_NEW_PACES = 0.03
_LATE_COMES = 0.05
_ABANDONED_COMES = 0.3
SURE = frozenset({"deliver", "ack", "reject", "requeue", "provider.send", "receiver.call"})
"""Steps between a process and the message in its hands: their replies are not lost, but the connection may be. What
becomes of a call, its provider or its receiver says itself."""


class Weather(Protocol):
    """Which troubles a run meets. In `uneven` weather some processes hardly move while others run; in `fair` weather
    there is no trouble at all."""

    @property
    def uneven(self) -> bool: ...
    @property
    def fair(self) -> bool: ...

    def strikes(self, trouble: str, chance: Random, *, at: str = "") -> bool:
        """Whether this trouble comes now, at this step."""


class Fate(Enum):
    """What becomes of a step."""

    GOES_ON = ""
    UNASKED = "nobody there"
    UNANSWERED = "done, no answer"
    LATE = "no answer, comes later"


class Step(Struct, eq=False):
    """Something that a task wants to do, and waits for."""

    process: "Process"
    task: "asyncio.Task[Any] | None"
    name: str
    about: tuple[object, ...]
    action: Action
    answer: "asyncio.Future[Any]"


class Process:
    """A process: all that it wants from the world goes through it (`steps.Gate`)."""

    def __init__(self, name: str, simulation: "Simulation") -> None:
        self.name = name
        self.pace = 1.0
        self.wakes_at = 0.0
        self.dead = False
        self.subscriptions: list[MemorySubscription] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self._simulation = simulation

    def run(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Begin something in it."""
        token = _running.set(self)
        try:
            return self._simulation.loop.create_task(work)
        finally:
            _running.reset(token)

    async def take(self, step: str, action: Action, *about: object) -> Any:
        return await self._simulation.take(self, step, action, about)

    def strikes(self, trouble: str) -> bool:
        return self._simulation.strikes(trouble)

    def die(self) -> None:
        """It is killed. What it holds of the broker's goes back; what it has asked for may still happen."""
        self.dead = True
        for subscription in self.subscriptions:
            subscription.leave()
        for task in self.tasks:
            task.cancel()


class Simulation:
    """One run. `choose` may do something of the world's own instead of a step, and `check` looks after each choice.
    `struck` counts the troubles that came."""

    def __init__(self, chance: Random, weather: Weather) -> None:
        self.chance = chance
        self.weather = weather
        self.trace = Trace()
        self.loop = VirtualLoop(self._idle)
        self.loop.set_task_factory(self._make_task)
        self.processes: list[Process] = []
        self.waiting: list[Step] = []
        self.late: list[Step] = []
        self.choices = 0
        self.struck = Counter[str]()
        self.choose: Callable[[], bool] = lambda: False
        self.check: Callable[[Step | None, Any], None] = lambda *_: None
        self.rest: Callable[[], None] = lambda: None

    async def take(self, process: Process, name: str, action: Action, about: tuple[object, ...]) -> Any:
        """Wait until the step is chosen. Raises `Unavailable` where its reply is lost."""
        if process.dead:
            raise asyncio.CancelledError
        step = Step(process, asyncio.current_task(), name, about, action, self.loop.create_future())
        self.waiting.append(step)
        try:
            return await step.answer
        finally:
            if step in self.waiting:
                self.waiting.remove(step)
                self._abandon(step)

    def strikes(self, trouble: str) -> bool:
        """Whether this trouble comes now."""
        struck = self.weather.strikes(trouble, self.chance)
        if struck:
            self.struck[trouble] += 1
            self.trace.add(self.loop.now, "", trouble)
        return struck

    def start(self, name: str) -> Process:
        """One more process."""
        process = Process(name, self)
        self.processes.append(process)
        return process

    def forget(self, process: Process) -> None:
        """It has ended."""
        if process in self.processes:
            self.processes.remove(process)

    def kill(self, process: Process) -> None:
        """It is gone, with all its tasks."""
        self.trace.add(self.loop.now, process.name, "is killed")
        self.forget(process)
        process.die()

    def put_to_sleep(self, process: Process) -> None:
        """It stops where it is, for long."""
        process.wakes_at = self.loop.now + self.chance.choice(_SLEEPS)
        self.trace.add(self.loop.now, process.name, f"sleeps until {process.wakes_at:.1f}")

    def wake_all(self) -> None:
        """All go on."""
        for process in self.processes:
            process.wakes_at, process.pace = 0.0, 1.0

    def _idle(self, until_timer: float | None) -> None:
        self.choices += 1
        if self.choose():
            self.check(None, None)
        elif self.strikes("hurry") or (step := self._pick()) is None:
            self._pass_time(until_timer)
            self.check(None, None)
        elif step in self.waiting:
            self.check(step, self._perform(step))
        else:
            self._perform(step)
            self.check(None, None)

    def _pick(self) -> Step | None:
        """The next step: of whom is awake, and the fast ones before the slow ones."""
        if self.late and (not self.waiting or self.chance.random() < _LATE_COMES):
            return self.late.pop(self.chance.randrange(len(self.late)))
        if self.weather.uneven and self.chance.random() < _NEW_PACES:
            for process in self.processes:
                process.pace = self.chance.choice(_PACES)
        awake = [step for step in self.waiting if step.process.wakes_at <= self.loop.now]
        if not awake:
            return None
        return self.chance.choices(awake, [step.process.pace for step in awake])[0]

    def _perform(self, step: Step) -> Any:
        is_late = step not in self.waiting
        fate = Fate.GOES_ON if is_late else self._fate(step)
        if not is_late:
            self.waiting.remove(step)
        result: Any = None
        if fate in {Fate.GOES_ON, Fate.UNANSWERED}:
            try:
                result = finish(step.action())
            except Exception as error:  # noqa: BLE001 - it is the answer
                result = error
        elif fate is Fate.LATE:
            self.late.append(step)
        self.trace.add(self.loop.now, step.process.name, step.name, step.about, fate.value or is_late * "late", result)
        answer = result if fate is Fate.GOES_ON else Unavailable(f"{step.name}: {fate.value}")
        if not step.answer.done():
            if isinstance(answer, Exception):
                step.answer.set_exception(answer)
            else:
                step.answer.set_result(answer)
        return result

    def _fate(self, step: Step) -> Fate:
        if step.name not in SURE:
            for fate in (Fate.UNASKED, Fate.UNANSWERED, Fate.LATE):
                if self.weather.strikes(fate.name.lower(), self.chance, at=step.name):
                    return fate
        return Fate.GOES_ON

    def _abandon(self, step: Step) -> None:
        """Nobody waits for it any more; it may have been asked for all the same."""
        if step.name not in SURE and not self.weather.fair and self.chance.random() < _ABANDONED_COMES:
            self.late.append(step)

    def _pass_time(self, until_timer: float | None) -> None:
        if not self.waiting:
            self.rest()
        sleeping = [process.wakes_at for process in self.processes if process.wakes_at > self.loop.now]
        timer = None if until_timer is None else self.loop.now + until_timer
        self.loop.now = min([*sleeping, *([] if timer is None else [timer])], default=self.loop.now)

    def _make_task(self, loop: Any, work: Any, **options: Any) -> "asyncio.Task[Any]":
        task = asyncio.Task(work, loop=loop, **options)
        process = _running.get()
        if process is not None:
            process.tasks.append(task)
        return task
