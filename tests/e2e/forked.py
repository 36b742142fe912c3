"""Carillon's processes without their start: each is forked from one that has imported the program and done no more.

To import it costs more of a processor than most tests do, and there are hundreds of processes. What a process is made
of differs from nothing but that: an environment, a log and an end of its own. The command itself, from the program's
first line on, is what `test_embedded`, `test_demo` and the tests of the command line start.
"""

import multiprocessing
import os
import signal
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from services.parts import find_parts, find_processes

# What the command and the processes import when they are chosen, and the drivers of the native stack.
_PROGRAM = (
    "services.cli.programs",
    "services.process",
    "services.api.app",
    "litestar.plugins.pydantic",  # what an app imports when it is made, where pydantic is installed
    "services.worker.service",
    "shared.broker.rabbitmq",
    "shared.stream.kafka",
    "shared.blobs.s3",
)

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([*_PROGRAM, *(part.__module__ for part in find_parts(find_processes())), __name__])


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


def fork(service: str, environment: Mapping[str, str], log: Path) -> Forked:
    """Run `carillon SERVICE` with exactly this environment; what it says is added to `log`."""
    log.touch()
    process = _context.Process(target=_serve, args=(service, dict(environment), str(log)), daemon=True)
    process.start()
    return Forked(process)


def _serve(service: str, environment: dict[str, str], log: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for standard in (1, 2):
        os.dup2(output, standard)
    from services.cli import main
    from shared.runtime import faults

    faults.arm(environment.get("CARILLON_FAULT", ""))
    main([service], prog_name="carillon")
