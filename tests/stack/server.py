"""One server of the stack: what a kind of server must say of itself, and how any of them is brought up and taken down.

Everything that must survive the starter lies in the server's folder: `ports.json` (written before the first start), the
mark of the process (written by itself), `ready` (once it was healthy: from then on its data are worth keeping).
"""

import asyncio
import json
import shutil
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from services.embedded import processes
from tests.stack import places

START_SECONDS = 90.0
REUSE_SECONDS = 15.0
GRACE_SECONDS = 15.0

_T = TypeVar("_T")
Ports = Mapping[str, int]


class Missing(Exception):
    """A server that cannot be had on this machine, and why."""


def run_apart(work: Coroutine[Any, Any, _T]) -> _T:
    """Run it in a loop of its own in a thread of its own, so that a coroutine's caller may call us too."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class Command(msgspec.Struct, frozen=True):
    """How the server's process is started; `env` is the whole environment (None: ours), `user` needs root; `cwd` is its
    working folder."""

    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    user: str | None = None


class Server(ABC):
    """A kind of server. `key` names its folder; `port_names` are the loopback ports that it is given for good."""

    name: str
    port_names: tuple[str, ...] = ("client",)
    first_signal: signal.Signals = signal.SIGTERM
    needs: tuple["Server", ...] = ()

    @property
    def key(self) -> str:
        return self.name

    @abstractmethod
    def install(self) -> None:
        """Get what the server needs, if it is not there. Raises Missing."""

    def prepare(self, ports: Ports) -> None:
        """Make the data of a server that never ran; the data folder is there and empty."""

    @abstractmethod
    def command(self, ports: Ports) -> Command:
        """How to start it."""

    @abstractmethod
    def healthy(self, ports: Ports) -> bool:
        """Whether it answers in its own protocol."""

    @abstractmethod
    def addresses(self, ports: Ports) -> dict[str, str]:
        """The endpoints that it provides, by their names."""

    @property
    def folder(self) -> Path:
        return places.home() / self.key

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def mark_file(self) -> Path:
        return self.folder / "mark.json"

    @property
    def ready_file(self) -> Path:
        return self.folder / "ready"

    def mark(self) -> processes.ProcessMark | None:
        """The mark of its process, if that process still runs."""
        mark = processes.read_mark(self.mark_file)
        return mark if mark is not None and processes.is_alive(mark) else None

    def ports(self) -> Ports:
        """The ports that it was given; LookupError if it never was."""
        try:
            given: dict[str, int] = json.loads((self.folder / "ports.json").read_bytes())
        except FileNotFoundError:
            raise LookupError(f"{self.name} was never started") from None
        return given

    def has_all_ports(self) -> bool:
        """Whether it was given the ports that it has in this version."""
        return set(self.ports()) == set(self.port_names)


def bring_up(server: Server, *, may_wipe: bool) -> None:
    """Leave it as it is if it is healthy, else end what is left of it and start it.

    Its ports and data stay the same; only with `may_wipe` may data that do not come up again be thrown away.
    """
    for needed in server.needs:
        bring_up(needed, may_wipe=may_wipe)
    if _reusable(server):
        return
    take_down(server)
    with places.sole_installer():
        server.install()
    began = time.monotonic()
    if server.ready_file.exists() and not server.has_all_ports():
        server.ready_file.unlink()  # its folder is that of an earlier version
    if server.ready_file.exists():
        try:
            _run(server)
        except RuntimeError as failure:
            if not may_wipe:
                raise
            places.say(f"{server.name}: its old data do not come up ({failure}); starting with none")
            server.ready_file.unlink()
    if not server.ready_file.exists():
        _make(server)
        _run(server)
        server.ready_file.touch()
    places.say(f"{server.name}: ready in {time.monotonic() - began:.1f} s")


def _reusable(server: Server) -> bool:
    mark = server.mark()
    if mark is None or not server.ready_file.exists() or not server.has_all_ports():
        return False
    # A busy machine may be slow to answer: only a server that stays silent is ended.
    return _wait_healthy(server, mark, REUSE_SECONDS)


def _make(server: Server) -> None:
    shutil.rmtree(server.folder, ignore_errors=True)
    server.folder.mkdir(mode=0o711)
    server.data.mkdir()
    ports = {name: processes.free_port() for name in server.port_names}
    (server.folder / "ports.json").write_text(json.dumps(ports))
    server.prepare(ports)


def _run(server: Server) -> None:
    ports = server.ports()
    for port in ports.values():
        _wait_port_free(port)
    how = server.command(ports)
    mark = processes.spawn(
        how.argv, mark_file=server.mark_file, log=server.log, env=how.env, cwd=how.cwd, user=how.user
    )
    if not _wait_healthy(server, mark, START_SECONDS):
        processes.end(mark, grace_seconds=0.5)
        raise RuntimeError(f"{server.name} did not become healthy; the end of its log:\n{processes.tail(server.log)}")


def _wait_healthy(server: Server, mark: processes.ProcessMark, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not processes.is_alive(mark):
            return False
        if server.healthy(server.ports()):
            return True
        time.sleep(0.1)
    return False


def _wait_port_free(port: int) -> None:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                time.sleep(0.05)
            else:
                return
    raise RuntimeError(f"port {port} was taken by somebody else")


def take_down(server: Server, *, first: signal.Signals | None = None) -> None:
    """End its process, if it runs; whatever it needs beside it stays."""
    if mark := server.mark():
        processes.end(mark, grace_seconds=GRACE_SECONDS, first=first or server.first_signal)
