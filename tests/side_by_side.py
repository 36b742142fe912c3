"""Tests on several workers at once (`pytest -n`, as `make test` runs them).

In the gate all workers share one set of servers but for MongoDB, and no test kills or freezes one. In other runs each
worker has servers of its own, so a test may kill, freeze or fill them. A test that needs the machine for itself,
because it measures time, is marked `alone`: it waits until no other test runs, and none begins before it has ended.
Without workers all tests are alone.
"""

import faulthandler
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.embedded import processes
from tests import stack, tiers
from tests.stack import places
from tests.stack.kafka import QUICK_VARIABLE
from tests.stack.mongodb import OWN_VARIABLE

_MOST = 6
_PORT_RANGES = 8
_PATIENCE = 1.5
_ALONE_SECONDS = 900.0
_COLLECTION_SECONDS = 300.0
_running: dict[str, None] = {}
_turns = pytest.StashKey[Path]()
_session = pytest.StashKey[Future[stack.Session]]()
_shown = pytest.StashKey[int]()


def workers_here() -> int | None:
    """The processes of `-n auto`: more than there are cores, as half of a test is waiting. Each has 1 GB of servers."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None  # xdist reads it
    return min((os.cpu_count() or 1) + 2, _MOST)


def settle_in(config: pytest.Config) -> None:
    """Give this process its servers, if it is a worker. The first one has those that a person may have started, and in
    the gate all have them."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `timeout` sends it: the servers end with the run
    config.stash[_shown] = os.dup(2)  # while a test runs, pytest keeps to itself what goes there
    if name := _worker(config):
        config.stash[_turns] = places.home()
        os.environ[QUICK_VARIABLE] = "yes"
        # A port that one test has found free is not yet taken when another one looks.
        processes._PORTS = processes._PORTS[int(name.removeprefix("gw")) % _PORT_RANGES :: _PORT_RANGES]
        if name != "gw0":
            shared = tiers.chosen(config) is tiers.Tier.GATE
            own = (OWN_VARIABLE, name) if shared else (places.HOME_VARIABLE, str(places.beside(name)))
            os.environ.update([own])
        if tiers.chosen(config) is tiers.Tier.GATE and not config.option.markexpr:
            config.stash[_session] = ThreadPoolExecutor(1).submit(stack.Session)


def session_of(config: pytest.Config) -> stack.Session:
    """This process's use of the servers. In the gate they start while the tests are collected."""
    started = config.stash.get(_session, None)
    return started.result() if started else stack.Session()


def clear_up(config: pytest.Config) -> None:
    """After the workers: what those left that were interrupted or died."""
    if config.getoption("numprocesses", None):
        stack.down_unused()


def put_in_order(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is left with one when the others are done; the lonely last, all together."""
    if _worker(config):
        items.sort(key=lambda item: (_is_alone(item), item.get_closest_marker("chaos") is None))


def tell_interrupted() -> None:
    """Name the tests that run when something ends the run, as the time-out of `make test` does."""
    while _running:
        print(f"interrupted in {_running.popitem()[0]}", file=sys.__stderr__, flush=True)


def note_running(test: str, *, ended: bool = False) -> None:
    """Keep in mind which tests run on all workers."""
    _running[test] = None
    if ended:
        del _running[test]


@contextmanager
def watch(item: pytest.Item) -> Iterator[None]:
    """End this worker where a test hangs so that not even its time-out ends it: all threads' stacks are shown, the test
    has failed, and another worker goes on with the others."""
    seconds = item.config.getoption("timeout", None)
    shown = item.config.stash.get(_shown, None)
    if not seconds or shown is None:
        yield
        return
    # pytest's own plugin for this is off (pyproject.toml): it stops the timer once a test has failed, and then a
    # fixture may hang.
    faulthandler.dump_traceback_later(_PATIENCE * seconds, exit=True, file=shown)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def collecting(config: pytest.Config) -> Iterator[None]:
    """The first worker rewrites the tests' assertions; the others wait, and load what it has written."""
    folder = config.stash.get(_turns, None)
    if folder is None:
        yield
        return
    with (folder / "collection.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            places.lock(file, fcntl.LOCK_SH, "the tests to collect", seconds=_COLLECTION_SECONDS)
        yield


@contextmanager
def turn(item: pytest.Item) -> Iterator[None]:
    """Hold the machine for a test: with others, or alone."""
    folder = item.config.stash.get(_turns, None)
    if folder is None:
        yield
        return
    with (folder / "door.lock").open("ab") as door, (folder / "room.lock").open("ab") as room:
        # A test that waits to be alone stands in the door: else there would always be another one in the room.
        places.lock(door, fcntl.LOCK_EX, "the door of the tests that run alone", seconds=_ALONE_SECONDS)
        kind = fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH
        places.lock(room, kind, "the room of the tests that run alone", seconds=_ALONE_SECONDS)
        fcntl.flock(door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # Closing would not do: a child that a test has forked may have the file open too.
            fcntl.flock(room, fcntl.LOCK_UN)


def _worker(config: pytest.Config) -> str | None:
    given: dict[str, str] = getattr(config, "workerinput", {})
    return given.get("workerid")


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None
