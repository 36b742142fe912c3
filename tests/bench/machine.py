"""What the figures were measured on, and what processes have used. From /proc: the benchmarks need Linux."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from services.embedded.processes import ProcessMark, birth, family

_TICKS = os.sysconf("SC_CLK_TCK")


def described() -> str:
    """The machine in one line: cores, processor, memory, system, Python, and how busy it was before we began."""
    model = _first("/proc/cpuinfo", "model name")
    gigabytes = int(_first("/proc/meminfo", "MemTotal").split()[0]) * 1024 / 1e9
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores ({model}), {gigabytes:.0f} GB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}; load average at the start {load:.1f}"
    )


class Meter:
    """CPU seconds by name, each of a process and its descendants, from now on."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._begin = {name: cpu_seconds(pid) for name, pid in pids.items()}

    def used(self) -> dict[str, float]:
        """Since the meter was made."""
        return {name: cpu_seconds(pid) - self._begin[name] for name, pid in self._pids.items()}


class Memory(Struct, frozen=True):
    """A process's resident memory in MB (10^6 bytes), now and at its greatest."""

    now: float
    peak: float


def memory(pid: int) -> Memory:
    """What the kernel says of a process that runs."""
    status = f"/proc/{pid}/status"
    return Memory(*(int(_first(status, field).split()[0]) * 1024 / 1e6 for field in ("VmRSS", "VmHWM")))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, its descendants, and those of them that it has reaped."""
    born = birth(pid)
    marks = family(ProcessMark(pid, born)) if born is not None else []
    return sum(_ticks(mark.pid) for mark in marks) / _TICKS


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(field) for field in fields[11:15])


def _first(file: str, field: str) -> str:
    lines = Path(file).read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "unknown")
