"""All services in one process, with servers of their own: for a laptop, the demo and the tests.

    data folder ──> lock ──> MongoDB, PostgreSQL as children ──> setup ──> take up unfinished work ──> the services

MongoDB and PostgreSQL keep their data in the folder and the stream is a file there. Only the broker forgets, so at the
start everything unfinished is queued again. That needs no patience, as upkeep has it with other processes: the lock
says that there are none. `running.json` in the folder tells other commands where this process can be reached.

The folder is its user's alone, and PostgreSQL asks for a password that lies in it. MongoDB's stand-in knows none:
every user of the machine can reach its port.
"""

import asyncio
import base64
import fcntl
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from services.embedded import processes
from services.embedded.processes import ProcessMark
from services.embedded.servers import Child, start_servers
from services.wiring.servers import Servers
from shared.accounts.removal import make_sign_in_link
from shared.accounts.rules.secrets import PREFIX
from shared.console.rules.signs import ROLES
from shared.core.errors import Conflict, Invalid, Unavailable
from shared.drivers.http.signing import check_secret
from shared.drivers.kafka import Stream
from shared.drivers.secrets import KeyRing, fresh_key, read_keys
from shared.push.rules.feedback import Skipped, read
from shared.runtime.health import ProcessHealth
from shared.runtime.lifecycle import Background, Closing, run
from shared.runtime.loops import pause
from shared.runtime.private import make_private_folder, private_files, without_secrets, write_private
from shared.runtime.settings import ApiSettings, HealthSettings, Settings

FIRST_ADMIN = "admin@example.com"
OURS = ("up.lock", "carillon.log")  # each of them tells that we made the folder
KEY_FILE, SIGNING_FILE = "secret.key", "signing.key"
_LOOK_SECONDS = 0.5
_LOOPBACK_NAMES = frozenset({"127.0.0.1", "::1", "localhost"})
_LOOPBACK_NETWORKS = ("127.0.0.0/8", "::1/128")


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


Announce = Callable[[Instance, str], None]
"""Tells a person where everything is; beside it, the link that opens the dashboard, once."""


def data_folder(settings: Settings) -> Path:
    return Path(settings.embedded.data_dir).resolve()


def find_running(folder: Path) -> Instance | None:
    try:
        instance = msgspec.json.decode((folder / "running.json").read_bytes(), type=Instance)
    except (OSError, msgspec.DecodeError):
        return None
    return instance if processes.is_alive(instance.process) else None


async def serve(settings: Settings, announce: Announce) -> int:
    """Run until a signal or a failure; returns the exit code."""
    # Other commands import this module and must start quickly.
    from services.wiring.process import build, set_up
    from services.wiring.rooms import Rooms
    from services.wiring.schedulers import take_up

    folder = data_folder(settings)
    with private_files(), _lock_folder(folder), _cancel_on_signal() as ending:
        async with start_servers(folder) as children:
            mongodb, postgresql = children
            own = _own_settings(settings, folder, store=f"{mongodb.url}/carillon", audience=postgresql.url)
            servers, known = Servers(own, service="embedded"), ProcessHealth()
            try:
                rooms = Rooms(servers)
                await set_up(rooms)
                await take_up(rooms)
            except BaseException:
                await servers.close()
                raise
            components = [
                Background("servers", lambda stopping: _watch(children, stopping)),
                *build(rooms, ROLES, known),
                _RunningFile(folder, servers, announce),
            ]
            return await run(components, health=known, shutdown=own.shutdown, ending=ending)


def check_folder(folder: Path) -> None:
    if (instance := find_running(folder)) is not None:
        raise _is_taken(folder, instance)


def _is_taken(folder: Path, instance: Instance | None) -> Conflict:
    where = f" (process {instance.process.pid}, {instance.api})" if instance else ""
    return Conflict(f"Carillon runs on {folder} already{where}; --data-dir takes another folder")


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    try:
        make_private_folder(folder, ours=OURS)
        lock = (folder / "up.lock").open("ab")
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
    """Let SIGTERM and SIGINT end the start, until `run` listens to them.

    Python 3.11's `wait_for`, inside the drivers, swallows a cancellation now and then; so `run` learns from the event
    that it is to end.
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


async def _watch(children: Sequence[Child], stopping: asyncio.Event) -> None:
    """Raise `Unavailable` when one of the servers has died: without it nothing works here."""
    while not stopping.is_set():
        # If no file can be opened, no process can be looked at. That does not mean that it died.
        with suppress(OSError):
            for server in children:
                if not server.alive:
                    raise Unavailable(f"{server.name} has ended by itself; its log is {server.log}")
        await pause(stopping, _LOOK_SECONDS)


class _RunningFile(Closing):
    """A component that tells where we can be reached, once all services have started."""

    def __init__(self, folder: Path, servers: Servers, announce: Announce) -> None:
        super().__init__("running file", self._remove)
        self._file = folder / "running.json"
        self._servers = servers
        self._announce = announce

    async def start(self) -> None:
        chosen, pid = self._servers.settings, os.getpid()
        instance = Instance(
            process=ProcessMark(pid, processes.birth(pid) or ""),
            api=local_url(chosen.api),
            health=local_url(chosen.health),
            store=chosen.store.url,
            audience=chosen.audience.url,
            stream=chosen.stream.url,
            data=str(self._file.parent),
            admin=chosen.api.first_admin,
        )
        write_private(self._file, msgspec.json.encode(instance).decode())
        self._announce(instance, await make_link(instance, self._servers))

    async def _remove(self) -> None:
        self._file.unlink(missing_ok=True)


def local_url(listening: ApiSettings | HealthSettings) -> str:
    """The URL by which programs on this machine reach a server that listens there."""
    scheme = "https" if listening.certificate_file else "http"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listening.host, listening.host)  # noqa: S104 - read, not listened on
    return f"{scheme}://[{host}]:{listening.port}" if ":" in host else f"{scheme}://{host}:{listening.port}"


def settings_of(instance: Instance, settings: Settings) -> Settings:
    """The settings by which a running Carillon works, if it was started with these; nothing is written. Raises
    `Unavailable`, `Conflict`: a secret in its folder cannot be used."""
    folder = Path(instance.data)
    return _own_settings(settings, folder, store=instance.store, audience=instance.audience, makes=False)


def _own_settings(settings: Settings, folder: Path, *, store: str, audience: str, makes: bool = True) -> Settings:
    """The settings with our own servers in the places of all others, and secrets of our own where none are chosen.
    If this machine alone reaches the API, callbacks reach this machine: their receivers run in another terminal.
    Shutdown waits for no load balancer: a laptop has none."""
    # Links name the API's port before it is listened on. Behind a proxy on this machine others reach it too.
    api = replace(settings.api, port=settings.api.port or processes.free_port())
    is_local = api.host in _LOOPBACK_NAMES and not api.public_url
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
        api=replace(
            api,
            public_url=local_url(api) if is_local else api.public_url,
            first_admin=api.first_admin or FIRST_ADMIN,
        ),
        health=replace(settings.health, port=settings.health.port or processes.free_port()),
        shutdown=replace(settings.shutdown, readiness_seconds=0.0),
    )


def own_key(folder: Path, *, makes: bool = True) -> str:
    """The folder's key for the secrets of credentials. If there is none: a new one, or, unless this `makes` one, "".
    Raises `Conflict` if the file holds no key: another one would open none of the secrets."""
    key = _keep(folder / KEY_FILE, fresh_key if makes else None)
    if key is not None and not (len(read_keys(key)) == 1 and KeyRing.accepts(key)):
        lost = "no key: the secrets of credentials open by the one that it held"
        raise Conflict(f"{folder / KEY_FILE} holds {lost}; restore it")
    return key or ""


def own_signing_secret(folder: Path, *, makes: bool = True) -> str:
    """The folder's secret for signatures of callbacks, as `own_key`."""

    def fresh() -> str:
        return PREFIX + base64.b64encode(os.urandom(32)).decode()

    secret = _keep(folder / SIGNING_FILE, fresh if makes else None)
    try:
        if secret is not None:
            check_secret(secret, "")
    except Invalid:
        lost = "no signing secret: receivers verify callbacks by those that derive from the one that it held"
        raise Conflict(f"{folder / SIGNING_FILE} holds {lost}; restore it") from None
    return secret or ""


def _keep(file: Path, fresh: Callable[[], str] | None) -> str | None:
    if not file.exists():
        if fresh is None:
            return None
        write_private(file, fresh() + "\n")
    return file.read_text("utf-8", "replace").strip()


@asynccontextmanager
async def open_servers(instance: Instance, settings: Settings, *, service: str) -> AsyncIterator[Servers]:
    """The servers of a running Carillon, for another process on this machine. Raises like `settings_of`."""
    servers = Servers(settings_of(instance, settings), service=service)
    try:
        yield servers
    finally:
        await servers.close()


async def make_link(instance: Instance, servers: Servers) -> str:
    secret = await make_sign_in_link(servers.store, instance.admin, servers.clock.now())
    return f"{instance.api}/ui/welcome?key={secret}"


async def print_link(instance: Instance, settings: Settings) -> int:
    async with open_servers(instance, settings, service="dashboard") as servers:
        click.echo(await make_link(instance, servers))
    return 0


def describe(instance: Instance, link: str) -> str:
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


_READ_SECONDS = 0.25  # `carillon up` writes in another process, so its appends wake no reader here


async def print_records(stream: Stream, topic: str, *, follow: bool) -> int:
    """Print the values of a topic, one a line, oldest first. Raises `Invalid` if it has none."""
    out = sys.stdout.buffer
    if not follow and not any(end for _, end in (await stream.spans(topic)).values()):
        raise Invalid("it has no records; pushes of the app demo to iOS write to push-demo_apns-massive", field=topic)
    async with stream.reader(re.escape(topic), group="records") as reader:
        while (chunks := await reader.read(0)) or follow:
            out.writelines((value or b"") + b"\n" for chunk in chunks for value in chunk.values)
            out.flush()
            if not chunks:
                await asyncio.sleep(_READ_SECONDS)
    return 0


async def print_topics(stream: Stream) -> int:
    async with stream.reader(".*", group="records") as reader:
        await reader.read(0)
        ends = reader.ends()
    for topic in sorted({partition.rpartition("/")[0] for partition, end in ends.items() if end}):
        click.echo(topic)
    return 0


async def append_feedback(stream: Stream, topic: str) -> int:
    """Append each line of standard input to a topic; returns 1 if feedback would not count one of them."""
    code = 0
    for number, line in enumerate(sys.stdin.buffer, start=1):
        value = line.rstrip(b"\r\n")
        if isinstance(found := read(value), Skipped):
            click.echo(f"line {number} is not counted: {found.reason}", err=True)
            code = 1
        await stream.publish(topic, [value])
    return code
