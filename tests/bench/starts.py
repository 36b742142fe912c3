"""How soon each process is ready after its start, and what memory it holds while it has nothing to do.

It runs in an environment with what the image has and nothing else: some libraries look for others when they are
imported, and find them among the tools of development.
"""

import asyncio
import hashlib
import json
import subprocess
import time
import venv
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from shared.console.rules.signs import ROLES
from tests.bench.machine import cpu_seconds, memory
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target
from tests.e2e.house import House
from tests.stack.places import CHECKOUT, home

REQUIREMENTS = CHECKOUT / "requirements" / "run.txt"

_SETTLE_SECONDS = 3.0
_READY_MS = 600
_MEMORY_MB = {"scheduler": 80, "feedback-answers": 80, "feedback-bus": 80, "worker": 100}


class StartRun(Struct, frozen=True):
    """From the start of the program to its line "ready", in ms; its CPU time until it was idle, in ms; its memory then,
    in MB."""

    ready: float
    cpu: float
    memory: float


async def measure(place: Place) -> list[Measured]:
    """One process after the other, in turns."""
    processes = ROLES
    async with place.house() as house:
        house.python = await asyncio.to_thread(make_environment)
        turns = [{process: await start(house, process) for process in processes} for _ in range(place.repeat)]
    note = f"Idle means {_SETTLE_SECONDS:g} s after the start. The files lie in S3, and none is touched."
    return [
        Measured(f"start of {process}", figures(process, [turn[process] for turn in turns]), [note])
        for process in processes
    ]


def figures(process: str, runs: Sequence[StartRun]) -> list[Figure]:
    """As they stand beside their targets."""
    most = Target(_MEMORY_MB[process], at_most=True) if process in _MEMORY_MB else None
    return [
        Figure("to ready", [run.ready for run in runs], "ms", Target(_READY_MS, at_most=True)),
        Figure("CPU time of the start", [run.cpu for run in runs], "ms"),
        Figure("memory, idle", [run.memory for run in runs], "MB", most),
    ]


def make_environment() -> str:
    """The Python of an environment with the libraries of the image. It is made once for each state of the list."""
    content = REQUIREMENTS.read_bytes()
    python = home() / f"image-{hashlib.sha256(content).hexdigest()[:12]}" / "bin" / "python"
    if not python.exists():
        venv.create(python.parents[1], with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, "--require-hashes", "--requirement", str(REQUIREMENTS)], check=True)
        subprocess.run([*install, "--no-deps", str(CHECKOUT)], check=True)  # a process tells its version
    return str(python)


async def start(house: House, process: str) -> StartRun:
    """A program of its own that starts, becomes idle and ends."""
    began = time.time()
    running = await house.start(process)
    await asyncio.sleep(_SETTLE_SECONDS)
    run = StartRun((_ready_at(running.log) - began) * 1_000, cpu_seconds(running.pid) * 1_000, memory(running.pid).now)
    await running.end()
    return run


def _ready_at(log: str) -> float:
    """When the process said so itself: whoever waits for it learns that later."""
    lines = (json.loads(line) for line in log.splitlines() if line.startswith("{"))
    return next(datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines if line["event"] == "ready")
