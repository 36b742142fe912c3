"""Carillon's processes without their start: each is forked from one that has imported the program and done no more.

To import it costs more of a processor than most tests do, and there are hundreds of processes. What a process is made
of differs from nothing but that: an environment, a log and an end of its own. The command itself, from the program's
first line on, is what `test_embedded`, `test_demo` and the tests of the command line start.
"""

import multiprocessing
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from services.cli import verbs

# What the command and the processes import when they are chosen, and the drivers of the native stack.
_PROGRAM = (
    "services.cli.api",
    "services.cli.programs",
    "services.wiring.process",
    "services.wiring.api",
    "services.wiring.schedulers",
    "services.wiring.workers",
    "services.feedback.fan_out",
    "services.feedback.listener",
    "litestar.plugins.pydantic",  # what an app imports when it is made, where pydantic is installed
    "shared.drivers.rabbitmq.broker",
    "shared.drivers.kafka.stream",
    "shared.drivers.blobs.s3",
)

_VERBS = [f"{verbs.__name__}.{module.name}" for module in pkgutil.iter_modules(verbs.__path__)]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([*_PROGRAM, *_VERBS, __name__])


class Forked:
    """A process of ours, with as much of `asyncio.subprocess.Process` as tests use."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


def fork(words: list[str], environment: Mapping[str, str], log: Path) -> Forked:
    """Run `carillon SERVICE` with exactly this environment; what it says is added to `log`."""
    log.touch()
    process = _context.Process(target=_serve, args=(words, dict(environment), str(log)), daemon=True)
    process.start()
    return Forked(process)


def fork_command(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, *, given: Path, out: Path, err: Path
) -> Forked:
    """Run `carillon WORD...` with exactly this environment, in a folder, with these files as its standard ones."""
    files = [str(path) for path in (given, out, err)]
    process = _context.Process(target=_command, args=(list(words), dict(environment), str(folder), files))
    process.start()
    return Forked(process)


def _command(words: list[str], environment: dict[str, str], folder: str, files: list[str]) -> None:
    os.chdir(folder)
    os.dup2(os.open(files[0], os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # multiprocessing has put another one there
    _run(words, environment, files[1], files[2])


def _serve(words: list[str], environment: dict[str, str], log: str) -> None:
    _run(words, environment, log, log)


def _run(words: list[str], environment: dict[str, str], out: str, err: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    for standard, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), standard)
    from services.cli import main
    from shared.runtime import faults

    faults.arm(environment.get("CARILLON_FAULT", ""))
    main(words, prog_name="carillon")
