"""The life of a process: start its components in order, run, drain them in reverse order.

    starting ──> serving ──SIGTERM, SIGINT, a failed component──> draining ──> the exit code

Draining: /readyz fails, and for `readiness_seconds` nothing else changes, so that load balancers look away. Then every
component stops: it takes nothing new and finishes its work in hand, all together within `grace_seconds`. Unfinished
work is cancelled. A second signal ends the process at once, which is safe: every process may be killed at any instant.
Services that share a process are one list of components.
"""

import asyncio
import ctypes
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Protocol, runtime_checkable

import structlog

from shared.runtime.health import Phase, ProcessHealth
from shared.runtime.metrics import LOOP_LAG, LOOP_LONGEST_STRETCH, LOOP_STRETCH
from shared.runtime.settings import ShutdownSettings

log = structlog.get_logger(__name__)
EXIT_DRAINED = 0
EXIT_INTERRUPTED = 130  # as shells report Ctrl-C
EXIT_FAILED = 1  # a component could not start, failed while it ran, or failed to stop
EXIT_CUT_OFF = 3  # the grace period was over before the work in hand was done; 2 is a wrong command line
EXIT_SIGNAL = 128  # plus the number of the second signal
# The time to close for a component that is cancelled, or that begins to stop after the grace period.
CLOSING_SECONDS = 1.0
FILES = 65_536


def raise_file_limit() -> None:
    """Raise this process's limit of open files to `FILES`, or as far as the machine allows. Most machines begin with
    1,024, and a worker has as many calls under way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # the kernel may allow fewer than the hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Component(Protocol):
    """A part that runs for as long as the process does."""

    name: str

    async def start(self) -> None:
        """Return when the component works. If this raises or is cancelled, it has cleaned up."""

    async def stop(self) -> None:
        """Take nothing new, finish the work in hand, close. After a cancellation, give up the work in hand."""

    async def wait(self) -> None:
        """Return or raise only if the component ended without `stop`; both end the process."""


@runtime_checkable
class Checked(Protocol):
    """A component that readiness depends on, too."""

    name: str

    async def check(self) -> None:
        """Raise `Unavailable` while the component cannot work."""


class Background:
    """A component made of one function, which runs until `stopping` is set."""

    def __init__(self, name: str, work: Callable[[asyncio.Event], Coroutine[None, None, None]]) -> None:
        self.name = name
        self._work = work
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._work(self._stopping), name=self.name)

    async def stop(self) -> None:
        self._stopping.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait(self) -> None:
        if self._task is not None:
            await asyncio.wait({self._task})
            self._task.result()


class Closing:
    """A component that is already open (a connection, a pool) and is only closed at the end."""

    def __init__(self, name: str, close: Callable[[], Awaitable[None]]) -> None:
        self.name = name
        self._close = close

    async def start(self) -> None: ...

    async def stop(self) -> None:
        await self._close()

    async def wait(self) -> None:
        await asyncio.Event().wait()


async def run(
    components: Sequence[Component],
    *,
    health: ProcessHealth,
    shutdown: ShutdownSettings,
    ending: asyncio.Event | None = None,
    signals: bool = True,
) -> int:
    """Run the components until a signal, `ending` or a failure; return the exit code.

    The health pages come first in the list, so that they stop last. With `signals=False` (tests, or a process with its
    own handlers) only `ending` and a failure end the run.
    """
    ending = ending or asyncio.Event()
    started: list[Component] = []
    with _signals_set(ending) if signals else nullcontext():
        sound = await _start(components, started, ending)
        if sound and not ending.is_set():
            health.phase = Phase.SERVING
            log.info("ready", components=len(started))
            sound = await _watch(started, ending, health)
        health.phase = Phase.DRAINING
        await asyncio.sleep(shutdown.readiness_seconds)
        code = await _drain(started, shutdown.grace_seconds)
    log.info("ended", code=code)
    return code if sound else EXIT_FAILED


async def _start(components: Sequence[Component], started: list[Component], ending: asyncio.Event) -> bool:
    """Start one after the other; return false if one failed. Setting `ending` ends this early, without a failure."""
    for component in components:
        task = asyncio.create_task(component.start(), name=f"start {component.name}")
        ended = asyncio.create_task(ending.wait())
        await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSING_SECONDS)
            return True
        if (error := task.exception()) is not None:
            log.error("cannot start", component=component.name, exc_info=error)
            return False
        started.append(component)
    return True


async def _watch(components: Sequence[Component], ending: asyncio.Event, health: ProcessHealth) -> bool:
    """Return true when `ending` is set, false when a component ended by itself; `health` is told."""
    watched = {asyncio.create_task(component.wait()): component.name for component in components}
    ended = asyncio.create_task(ending.wait())
    done, _ = await asyncio.wait({*watched, ended}, return_when=asyncio.FIRST_COMPLETED)
    for task in (*watched, ended):
        task.cancel()
    failed = [task for task in watched if task in done]
    for task in failed:
        error = None if task.cancelled() else task.exception()
        health.mark_dead(watched[task], repr(error) if error else "ended by itself")
        log.error("component failed", component=watched[task], exc_info=error)
    return not failed


async def _drain(started: Sequence[Component], grace_seconds: float) -> int:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace_seconds
    codes = [await _stop(component, max(deadline - loop.time(), CLOSING_SECONDS)) for component in reversed(started)]
    return next((code for code in codes if code), EXIT_DRAINED)


async def _stop(component: Component, seconds: float) -> int:
    task = asyncio.create_task(component.stop(), name=f"stop {component.name}")
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        log.warning("drain cut off", component=component.name)
        task.cancel()
        # Not `wait_for`: a task that swallows its cancellation (a driver's frozen connection) must not hold the
        # process.
        await asyncio.wait({task}, timeout=CLOSING_SECONDS)
        return EXIT_CUT_OFF
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("cannot stop", component=component.name, exc_info=error)
        return EXIT_FAILED
    return EXIT_DRAINED


@contextmanager
def _signals_set(ending: asyncio.Event) -> Iterator[None]:
    def on_signal(number: signal.Signals) -> None:
        if ending.is_set():
            os._exit(EXIT_SIGNAL + number)
        log.info("stopping", signal=number.name)
        ending.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


@contextmanager
def pause_collection() -> Iterator[None]:
    """Turn the collector off while objects are made that all stay, such as modules. Its useless searches for cycles
    are a fifth of the work of importing."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def settle_in() -> None:
    """Call once after all modules are loaded: collect less often, skip the present objects, keep large blocks."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 10, 10)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library: nothing to tune
            malloc = ctypes.CDLL(None).mallopt
            malloc(_M_MMAP_THRESHOLD, 32 << 20)
            malloc(_M_TRIM_THRESHOLD, 128 << 20)


IDLE_SECONDS = 0.1
BUSY_SECONDS = 0.05
_BUSY_SHARE = 0.1


class LoopWatch(Background):
    def __init__(self) -> None:
        super().__init__("loop watch", self._watch)

    async def _watch(self, stopping: asyncio.Event) -> None:
        interval, spent, longest = IDLE_SECONDS, time.thread_time(), 0.0
        while not stopping.is_set():
            began = time.monotonic()
            await asyncio.sleep(interval)
            stretch = time.thread_time() - spent
            spent += stretch
            LOOP_LAG.observe(max(0.0, time.monotonic() - began - interval))
            LOOP_STRETCH.observe(stretch)
            longest = max(longest, stretch)
            LOOP_LONGEST_STRETCH.set(longest)
            interval = BUSY_SECONDS if stretch > _BUSY_SHARE * interval else IDLE_SECONDS
