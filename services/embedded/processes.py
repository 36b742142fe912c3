"""Server processes that outlive one call: started, recognised again, and ended for certain.

A process is known by its *mark*: its pid together with the instant at which the kernel says it was born. The pid alone
is reused; the pair is not. The process writes its own mark before it becomes the server, so every server that runs can
be found again, whenever its starter was killed.
"""

import ctypes
import errno
import os
import pwd
import random
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from shared.core.errors import Unavailable

# Below every usual ephemeral range: no client's socket takes the port that a server gives up for its restart.
_PORTS = range(20_000, 32_000)
_TRIED = 500
_given: deque[int] = deque(maxlen=250)
_giving = threading.Lock()
_PR_SET_PDEATHSIG = 1
_HAS_PROC = Path("/proc/self/stat").exists()
_LIBC = ctypes.CDLL(None) if _HAS_PROC else None
_POLL_SECONDS = 0.02


class ProcessMark(msgspec.Struct, frozen=True):
    """One process of this boot: its pid, and when it was born in the kernel's own words."""

    pid: int
    born: str


def birth(pid: int) -> str | None:
    """When the process was born; `None` if no process has this pid, or only one that is dead and not yet reaped."""
    if _HAS_PROC:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = stat.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
        return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"
    found = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, born = found.stdout.strip().partition(" ")
    return born.strip() if born and not state.startswith("Z") else None


def is_alive(mark: ProcessMark) -> bool:
    """Whether this very process still runs (stopped by SIGSTOP counts as running)."""
    return birth(mark.pid) == mark.born


def read_mark(file: Path) -> ProcessMark | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=ProcessMark)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def free_port() -> int:
    """A loopback TCP port on which no process listens now, and which this function has not returned of late: a server
    that is being started does not listen yet."""
    with _giving:
        for port in random.sample(_PORTS, _TRIED):
            if port not in _given and is_free("127.0.0.1", port):
                _given.append(port)
                return port
    raise OSError("no free loopback port found")


def is_free(host: str, port: int) -> bool:
    """Whether we could listen there. Raises `Unavailable` for an address that is not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return True


def spawn(
    argv: Sequence[str],
    *,
    mark_file: Path,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: str | None = None,
    signal_if_orphaned: signal.Signals | None = None,
) -> ProcessMark:
    """Start a server in a session of its own (a terminal's Ctrl-C does not reach it), with its output added to `log`.

    `user` needs root. `signal_if_orphaned` is sent by the kernel when the starting thread ends, where Linux offers it.
    """
    marking = os.open(mark_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=cwd,
                user=user,
                group=None if user is None else group_of(user),
                extra_groups=None if user is None else [],
                env=None if env is None else dict(env),
                preexec_fn=_first_words(marking, signal_if_orphaned),  # noqa: PLW1509 - it takes no lock
            )
        mark = ProcessMark(process.pid, birth(process.pid) or "")
        if not _HAS_PROC:
            os.pwrite(marking, msgspec.json.encode(mark), 0)
    finally:
        os.close(marking)
    process.returncode = 0  # the mark answers for it from here on: Popen must not warn that it still runs
    return mark


def group_of(user: str) -> int:
    return pwd.getpwnam(user).pw_gid


def _first_words(marking: int, orphaned: signal.Signals | None) -> Callable[[], None]:
    """The steps of the new process before it becomes the server: write its mark, and tie itself to its parent."""
    parent = os.getpid()

    def speak() -> None:
        if _HAS_PROC:
            pid = os.getpid()
            os.write(marking, msgspec.json.encode(ProcessMark(pid, birth(pid) or "")))
        if orphaned is not None and _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, int(orphaned))
            if os.getppid() != parent:
                os._exit(1)

    return speak


def family(mark: ProcessMark) -> list[ProcessMark]:
    """The process and all that descend from it, parents first; empty if it is gone."""
    if not is_alive(mark):
        return []
    parents = _parents()
    pids = [mark.pid]
    for pid in pids:
        pids.extend(child for child, parent in parents.items() if parent == pid)
    births = ((pid, birth(pid)) for pid in pids)
    return [ProcessMark(pid, born) for pid, born in births if born is not None]


def _parents() -> dict[int, int]:
    """pid -> parent's pid of every process."""
    if not _HAS_PROC:
        table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        return {int(pid): int(parent) for pid, parent in (line.split() for line in table.splitlines())}
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return parents


def signal_all(marks: Sequence[ProcessMark], number: signal.Signals) -> None:
    """Signal those of the processes that are still the ones we mean."""
    for mark in marks:
        if is_alive(mark):
            with suppress(ProcessLookupError):
                os.kill(mark.pid, number)


def end(mark: ProcessMark, *, grace_seconds: float, first: signal.Signals = signal.SIGTERM) -> None:
    """Ask the process to end; kill it with its descendants once the grace is over. Returns when it is gone."""
    members = family(mark)
    if first is not signal.SIGKILL:
        signal_all([mark], first)
        signal_all(members, signal.SIGCONT)  # a stopped process would not hear the request
        if wait_gone([mark], grace_seconds):
            return
    members = family(mark) or members
    signal_all(members, signal.SIGKILL)
    wait_gone(members, 10.0)


def wait_gone(marks: Sequence[ProcessMark], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(is_alive(mark) for mark in marks):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    for mark in marks:
        with suppress(ChildProcessError):  # another process's child
            os.waitpid(mark.pid, os.WNOHANG)
    return True


def tail(log: Path, lines: int = 20) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"
