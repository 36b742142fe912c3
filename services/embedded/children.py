"""Servers that run as children of ours: started on a free loopback port, waited for until healthy, stopped with us.

A child never outlives its parent for long. `stop()` ends it; where the parent is killed, Linux ends it at once; and
where neither happened, the next start on the same folder finds its mark and ends it first. The folder is locked while a
parent uses it, so two parents never work on the same data, and the data survive restarts.
"""

import asyncio
import fcntl
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

import msgspec

from services.embedded import handshakes, processes
from services.embedded import servers as embedded_servers
from services.embedded.ports import is_free
from shared.domain.errors import Unavailable

_START_SECONDS = 60.0
_GRACE_SECONDS = 10.0
_POLL_SECONDS = 0.05


class ChildServer(msgspec.Struct, frozen=True):
    """How to run one server: `command` and `healthy` are given its port, `prepare` makes its data before every start.

    It runs as `user`, in the folder `cwd`. `stop_with` is the signal at which it ends without waiting for its clients.
    """

    name: str
    command: Callable[[int], list[str]]
    healthy: Callable[[int], Awaitable[bool]]
    prepare: Callable[[], None]
    user: str | None = None
    cwd: Path | None = None
    stop_with: signal.Signals = signal.SIGTERM


class Child:
    """One running server in `folder`, where its log, its mark and its lock lie beside its data.

    Start it from a thread that lives as long as the child should: on Linux the child ends with that thread.
    """

    def __init__(self, server: ChildServer, folder: Path) -> None:
        self.server = server
        self.log = folder / f"{server.name}.log"
        self._mark_file = folder / f"{server.name}.mark"
        self._lock_file = folder / f"{server.name}.lock"
        self._port_file = folder / f"{server.name}.port"
        self._lock: IO[bytes] | None = None
        self._mark: processes.ProcessMark | None = None
        self.port = 0

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._mark is not None and processes.is_alive(self._mark)

    async def start(self, *, within_seconds: float = _START_SECONDS) -> int:
        """Start it and return its port once it is healthy. Raises Unavailable, with the end of its log."""
        self._hold_folder()
        try:
            await asyncio.to_thread(self._clear_and_prepare)
            self.port = self._choose_port()
            self._mark = processes.spawn(
                self.server.command(self.port),
                mark_file=self._mark_file,
                log=self.log,
                cwd=self.server.cwd,
                user=self.server.user,
                signal_if_orphaned=self.server.stop_with,
            )
            await self._wait_healthy(within_seconds)
        except BaseException as failure:
            await self.stop()
            if isinstance(failure, OSError | subprocess.CalledProcessError):
                raise self._unavailable(f"could not be started: {_words(failure)}") from failure
            raise
        return self.port

    async def stop(self, *, grace_seconds: float = _GRACE_SECONDS) -> None:
        """End it, by force once the grace is over, and let go of its folder. Stopping twice is fine."""
        try:
            if self._mark is not None:
                ending = asyncio.to_thread(
                    processes.end, self._mark, grace_seconds=grace_seconds, first=self.server.stop_with
                )
                await asyncio.shield(ending)
        finally:
            self._mark = None
            self._let_go()

    def _hold_folder(self) -> None:
        self._lock_file.parent.mkdir(parents=True, exist_ok=True)
        lock = self._lock_file.open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise Unavailable(f"{self.server.name}: {self._lock_file.parent} is in use by another process") from None
        self._lock = lock

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _choose_port(self) -> int:
        """The port of the last start, so that addresses that people noted stay right; another one if it is taken."""
        try:
            last = int(self._port_file.read_text())
        except (OSError, ValueError):
            last = 0
        port = last if 0 < last < 65_536 and is_free("127.0.0.1", last) else processes.free_port()
        self._port_file.write_text(str(port))
        return port

    def _clear_and_prepare(self) -> None:
        left = processes.read_mark(self._mark_file)
        if left is not None:
            processes.end(left, grace_seconds=_GRACE_SECONDS, first=self.server.stop_with)
        self.server.prepare()

    async def _wait_healthy(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not await self.server.healthy(self.port):
                    if not self.alive:
                        raise self._unavailable("ended as soon as it was started")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise self._unavailable(f"did not become healthy in {seconds:g} s") from None

    def _unavailable(self, what: str) -> Unavailable:
        return Unavailable(f"{self.server.name} {what}; the end of {self.log}:\n{processes.tail(self.log)}")


def _words(failure: Exception) -> str:
    """The failed program's stderr, or else the failure itself."""
    stderr = failure.stderr if isinstance(failure, subprocess.CalledProcessError) else None
    return str(stderr or failure)


def mongodb_child(folder: Path) -> Child:
    """`secantusd-rs` with its data in `folder`/mongodb; reach it at mongodb://127.0.0.1:PORT. Raises Unavailable."""
    data = folder.resolve() / "mongodb"
    try:
        binary = embedded_servers.mongodb_binary()
    except FileNotFoundError as absent:
        raise Unavailable(str(absent)) from None
    server = ChildServer(
        name="mongodb",
        command=lambda port: embedded_servers.mongodb_command(binary, data, port),
        healthy=handshakes.mongodb_answers,
        prepare=lambda: data.mkdir(exist_ok=True),
    )
    return Child(server, data.parent)


def postgres_child(folder: Path) -> Child:
    """PostgreSQL with its data in `folder`/postgresql; reach it at `postgres_url`. As root it runs as another user.

    Raises Unavailable.
    """
    data = folder.resolve() / "postgresql"
    user = embedded_servers.postgres_user()
    try:
        programs = embedded_servers.reachable_programs(embedded_servers.postgres_programs(), user)
    except OSError as absent:
        raise Unavailable(str(absent)) from None

    def prepare() -> None:
        embedded_servers.make_cluster(programs, data, user)
        embedded_servers.protect_cluster(programs, data, user)

    server = ChildServer(
        name="postgresql",
        command=lambda port: embedded_servers.postgres_command(programs, embedded_servers.as_seen_by(user, data), port),
        healthy=handshakes.postgres_answers,
        prepare=prepare,
        user=user,
        cwd=data,
        stop_with=signal.SIGINT,  # SIGTERM would wait for every client to leave
    )
    return Child(server, data.parent)


def postgres_url(child: Child, folder: Path) -> str:
    """The URL of a running `postgres_child` of the folder, with the password that its folder holds."""
    password = embedded_servers.postgres_password(folder.resolve() / "postgresql")
    return f"postgresql://postgres:{password}@127.0.0.1:{child.port}/postgres"
