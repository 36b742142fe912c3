"""Parts: what each subject adds to the processes.

A subject is a package in this folder, and its rooms on every floor. The API serves the resources of all parts, workers
run all of their stages, and the clock calls their handlers. No central file names them.

    common.py                          for several processes: flows, kinds of jobs, checks
    api.py, worker.py, scheduler.py    for one process, by its name
    __init__.py                        the subject in a sentence, and its own processes (`PROCESSES`)

Each of these modules defines one `Part`, and may be missing. A process loads the common ones and those of its own name,
so it imports only what it uses: a worker does not load the API's framework. A small subject may be one module, which
all processes load.

A part builds shared things, such as flows, once, on first use. A part that needs another's flows finds that part with
`Parts.of`.
"""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from shared.domain.tasks import TASK_PREFIXES

if TYPE_CHECKING:  # a part names all of them, and no process loads all of them
    from services.api.http.pages.routes import PageSet
    from services.api.http.routes import Resource
    from services.connections import Capabilities
    from services.scheduler.fire import OnDue
    from services.worker.consumer import Stage
    from shared.flow.accounts import Belongings
    from shared.flow.clock.revocations import PauseNamespace
    from shared.flow.jobs.kinds import JobKind
    from shared.runtime.lifecycle import Component
    from shared.stream import TopicSpec

AnyPart = TypeVar("AnyPart", bound="Part")

Check = Callable[[], Awaitable[None]]
"""A check of readiness. Raises `Unavailable` if a server does not answer."""

_COMMON = "common"
_SHARED_PROCESSES = {
    "api": "Run the HTTP API.",
    "scheduler": "Run the scheduler: the clock, and upkeep of unfinished work.",
    "worker": "Run a worker: it plans, sends and finishes jobs.",
}


class Part:
    """The part of one subject in a process. A subject overrides what it needs; the rest is empty here."""

    def __init__(self, capabilities: "Capabilities", parts: "Parts") -> None:
        self.capabilities = capabilities
        self.settings = capabilities.settings
        self.store = capabilities.store
        self.parts = parts

    def resources(self) -> "Sequence[Resource]":
        return ()

    def pages(self) -> "Sequence[PageSet]":
        return ()

    def job_kinds(self) -> "Sequence[JobKind]":
        return ()

    def stages(self) -> "Sequence[Stage[Any]]":
        return ()

    def on_due(self) -> "Mapping[str, OnDue]":
        """The clock's handlers of occurrences, by the kind of their owner."""
        return {}

    def components(self, process: str) -> "Sequence[Component]":
        """The components of this process except routes, stages and the clock: upkeep, retention, listeners."""
        return ()

    def checks(self, process: str) -> Mapping[str, Check]:
        """The servers on which this process's readiness depends, by their names in `/readyz`."""
        return {}

    def side_checks(self, process: str) -> Mapping[str, Check]:
        """The servers that some of its work needs: while one is away the process is ready, and `/readyz` and
        `/overview` name it."""
        return {}

    def stream_topics(self) -> "Mapping[str, TopicSpec]":
        """The subject's topics of the stream, which `carillon init` makes. They belong into a common part, because
        every process checks that they exist."""
        return {}

    def belongings(self) -> "Sequence[Belongings]":
        """The data that the subject has stored for apps, which is removed with them."""
        return ()

    def on_revoked(self) -> "Sequence[PauseNamespace]":
        """Functions that pause the things of a revoked caller; schedules are paused without them."""
        return ()

    async def take_up(self) -> None:
        """Find all unfinished work at once. Only for the start of a store's only process: no other process works, so no
        patience is needed."""


class Parts:
    """The parts of one process, which find each other here. `processes` may name several that run in one; `None`:
    all."""

    def __init__(self, capabilities: "Capabilities", processes: Collection[str] | None = None) -> None:
        self.capabilities = capabilities
        self._built: dict[type[Part], Part] = {}
        for kind in find_parts(find_processes() if processes is None else processes):
            self.of(kind)

    def __iter__(self) -> Iterator[Part]:
        return iter(self._built.values())

    @cached_property
    def job_kinds(self) -> "list[JobKind]":
        return [kind for part in self for kind in part.job_kinds()]

    @cached_property
    def stages(self) -> "list[Stage[Any]]":
        """The stages of all subjects. They belong to the worker of this process, and end with it.

        Raises:
            ValueError: two stages share a queue, a kind of job has no stage, or callbacks could publish to a queue.
        """
        stages = [stage for part in self for stage in part.stages()]
        queues = [stage.task.queue for stage in stages]
        sent = {kind.batch_task.queue for kind in self.job_kinds}
        if len(set(queues)) < len(queues) or not sent <= set(queues):
            raise ValueError(f"a stage has a queue of its own, and a kind of job a stage: {queues}, {sorted(sent)}")
        if not all(queue.startswith(TASK_PREFIXES) for queue in queues):
            raise ValueError(f"a queue begins with one of {TASK_PREFIXES}: {queues}")
        return stages

    @cached_property
    def stream_topics(self) -> "dict[str, TopicSpec]":
        return {name: topic for part in self for name, topic in part.stream_topics().items()}

    @cached_property
    def belongings(self) -> "list[Belongings]":
        return [owned for part in self for owned in part.belongings()]

    @cached_property
    def on_revoked(self) -> "list[PauseNamespace]":
        return [pause for part in self for pause in part.on_revoked()]

    @cached_property
    def on_due(self) -> "dict[str, OnDue]":
        """The clock's handlers of all subjects. Raises `ValueError` if two parts claim a kind."""
        found = [(kind, handler) for part in self for kind, handler in part.on_due().items()]
        if len(dict(found)) < len(found):
            raise ValueError(f"two parts claim one kind of owner: {[kind for kind, _ in found]}")
        return dict(found)

    def of(self, kind: type[AnyPart]) -> AnyPart:
        if kind not in self._built:
            self._built[kind] = kind(self.capabilities, self)
        return cast(AnyPart, self._built[kind])


def find_processes() -> dict[str, str]:
    """Every process with its sentence in `carillon --help`: first those that subjects share."""
    own = [getattr(subject, "PROCESSES", {}) for subject in _subjects()]
    return _SHARED_PROCESSES | {name: sentence for processes in own for name, sentence in processes.items()}


def find_parts(processes: Collection[str]) -> list[type[Part]]:
    """The parts of all subjects that these processes need, in the order of the subjects' names."""
    modules = [module for subject in _subjects() for module in _modules(subject, processes)]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Part) and value.__module__ == module.__name__
    ]


def _subjects() -> list[ModuleType]:
    return [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]


def _modules(subject: ModuleType, processes: Collection[str]) -> list[ModuleType]:
    """The subject's own module, and those of the processes in its package."""
    there = [found.name for found in pkgutil.iter_modules(getattr(subject, "__path__", ()))]
    needed = [name for name in (_COMMON, *processes) if name in there]
    return [subject, *(importlib.import_module(f"{subject.__name__}.{name}") for name in needed)]
