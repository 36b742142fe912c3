"""The report of a process about itself, whatever it serves."""

from collections.abc import Sequence

from services.parts import Parts
from shared.flow.console.processes import Heartbeat, MinuteCounting
from shared.runtime.health import ProcessHealth
from shared.runtime.lifecycle import Component, LoopWatch


def report(parts: Parts, processes: Sequence[str], health: ProcessHealth) -> list[Component]:
    """The components that tell of this process: they stop when what it serves has stopped."""
    given = parts.capabilities
    return [
        LoopWatch(),
        Heartbeat(given.store, given.time, health, given.settings, tuple(processes)),
        MinuteCounting(given.store, given.time),
    ]
