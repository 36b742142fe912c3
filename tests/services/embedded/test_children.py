"""Child servers: healthy when started, gone when stopped, found again when their parent was killed, with their data."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import asyncpg
import pymongo
import pytest

from services.embedded import processes, servers
from services.embedded.servers import Child, MongoDbChild, PostgreSqlChild
from shared.core.errors import Unavailable
from tests.waiting import until

pytestmark = pytest.mark.later("starts and kills servers; e2e/test_embedded.py has them at work")

CHECKOUT = Path(__file__).resolve().parents[3]
C = TypeVar("C", bound=Child)
MAKERS = [MongoDbChild, PostgreSqlChild]


class Opened(Protocol):
    """Remembers a child, so that it is stopped."""

    def __call__(self, child: C) -> C: ...


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, and as closed to other users as a data folder."""
    with tempfile.TemporaryDirectory(prefix="carillon-children-") as made:
        yield Path(made)


@pytest.fixture
async def opened(folder: Path) -> AsyncIterator[Opened]:
    """Whatever a test starts is stopped, also when it fails."""
    children: list[Child] = []

    def keep(child: C) -> C:
        children.append(child)
        return child

    yield keep
    for child in children:
        await child.stop()


class Dummy(Child):
    """A program of the test's, in the place of a server."""

    name = "dummy"

    def __init__(self, folder: Path, *command: str, healthy: bool = True) -> None:
        super().__init__(folder)
        self._command = list(command)
        self._healthy = healthy

    def prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def command(self) -> list[str]:
        return self._command

    def is_healthy(self) -> bool:
        return self._healthy


def mark_in(folder: Path, name: str) -> processes.ProcessMark:
    mark = processes.read_mark(folder / f"{name}.mark")
    assert mark is not None
    return mark


async def put_and_count(child: MongoDbChild | PostgreSqlChild) -> int:
    """Store one more document or row, and say how many there are."""
    if isinstance(child, MongoDbChild):
        client: pymongo.AsyncMongoClient[dict[str, int]] = pymongo.AsyncMongoClient(child.url)
        async with client:
            await client["kept"]["things"].insert_one({})
            return await client["kept"]["things"].count_documents({})
    connection = await asyncpg.connect(child.url)
    await connection.execute("CREATE TABLE IF NOT EXISTS things (id serial)")
    await connection.execute("INSERT INTO things DEFAULT VALUES")
    count: int = await connection.fetchval("SELECT count(*) FROM things")
    await connection.close()
    return count


@pytest.mark.parametrize("make", MAKERS)
async def test_data_survive_a_stop_and_a_kill(
    make: type[MongoDbChild | PostgreSqlChild], folder: Path, opened: Opened
) -> None:
    child = opened(make(folder))
    await child.start()
    assert await put_and_count(child) == 1
    mark = mark_in(folder, child.name)
    await child.stop()
    assert not processes.is_alive(mark)
    await child.start()
    assert await put_and_count(child) == 2
    processes.end(mark_in(folder, child.name), grace_seconds=0, first=signal.SIGKILL)
    assert not child.alive
    await child.stop()
    await child.start()
    assert await put_and_count(child) == 3


@pytest.mark.parametrize("make", MAKERS)
async def test_a_killed_parent_leaves_nothing_that_the_next_start_does_not_end(
    make: type[MongoDbChild | PostgreSqlChild], folder: Path, opened: Opened
) -> None:
    program = f"""
        import asyncio, os, pathlib, signal
        from services.embedded.servers import {make.__name__} as make
        async def main():
            child = make(pathlib.Path({str(folder)!r}))
            await child.start()
            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(main())
    """
    parent = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=CHECKOUT, check=False, timeout=50)
    assert parent.returncode == -signal.SIGKILL
    child = opened(make(folder))
    left = mark_in(folder, child.name)
    await child.start()
    assert not processes.is_alive(left)
    assert await put_and_count(child) == 1


async def test_what_a_dead_parent_left_is_ended_even_if_the_kernel_did_not(folder: Path, opened: Opened) -> None:
    left = processes.spawn(["sleep", "600"], mark_file=folder / "dummy.mark", log=folder / "dummy.log")
    assert processes.is_alive(left)
    child = opened(Dummy(folder, "sleep", "600"))
    await child.start()
    assert not processes.is_alive(left)


async def test_a_reused_pid_is_not_killed(folder: Path, opened: Opened) -> None:
    stranger = processes.spawn(["sleep", "600"], mark_file=folder / "stranger", log=folder / "log")
    stale = processes.ProcessMark(stranger.pid, "another boot: 1")
    (folder / "dummy.mark").write_text(f'{{"pid": {stale.pid}, "born": "{stale.born}"}}')
    child = opened(Dummy(folder, "sleep", "600"))
    await child.start()
    assert processes.is_alive(stranger)
    processes.end(stranger, grace_seconds=0, first=signal.SIGKILL)


async def test_the_mark_is_there_before_the_server_is(folder: Path) -> None:
    shown = folder / "shown"
    mark_file = folder / "mark"
    # It stays after the copy: of one that has ended already, nobody can tell the birth any more.
    copies = ["sh", "-c", 'cp "$0" "$1.new" && mv "$1.new" "$1" && exec sleep 600', str(mark_file), str(shown)]
    mark = processes.spawn(copies, mark_file=mark_file, log=folder / "log")
    await until(shown.exists, "the copy of the mark")
    assert processes.read_mark(shown) == mark
    processes.end(mark, grace_seconds=0, first=signal.SIGKILL)


async def test_one_that_ends_at_once_says_why(folder: Path, opened: Opened) -> None:
    child = opened(Dummy(folder, "sh", "-c", "echo no such luck; exit 1", healthy=False))
    with pytest.raises(Unavailable, match=r"ended as soon.*\n.*no such luck"):
        await child.start()


async def test_one_that_never_gets_healthy_is_ended(folder: Path, opened: Opened) -> None:
    child = opened(Dummy(folder, "sleep", "600", healthy=False))
    with pytest.raises(Unavailable, match=r"did not become healthy in 0.3 s"):
        await child.start(within_seconds=0.3)
    assert not processes.is_alive(mark_in(folder, "dummy"))


async def test_one_without_a_program_is_unavailable(folder: Path, opened: Opened) -> None:
    with pytest.raises(Unavailable, match="could not be started"):
        await opened(Dummy(folder, "/no/such/program")).start()


async def test_one_deaf_to_its_signal_is_killed_with_its_children(folder: Path, opened: Opened) -> None:
    deaf = "import signal, subprocess; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    deaf += "subprocess.run(['sleep', '600'])"
    child = opened(Dummy(folder, sys.executable, "-c", deaf))
    await child.start()
    mark = mark_in(folder, "dummy")
    members = await until(lambda: len(found := processes.family(mark)) > 1 and found, "the child of the server")
    await child.stop(grace_seconds=0.2)
    assert not any(processes.is_alive(member) for member in members)


async def test_half_made_data_are_made_anew(folder: Path, opened: Opened) -> None:
    half = folder / "postgresql"
    half.mkdir()
    (half / "PG_VERSION").write_text("18")
    child = opened(PostgreSqlChild(folder))
    await child.start()
    assert await put_and_count(child) == 1


def test_birth_of_what_is_not_there() -> None:
    assert processes.birth(os.getpid()) is not None
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert processes.birth(zombie.pid) is None
    zombie.wait()
    assert processes.birth(zombie.pid) is None


async def test_postgresql_lets_nobody_in_without_its_password(folder: Path, opened: Opened) -> None:
    child = opened(PostgreSqlChild(folder))
    await child.start()
    for password in (None, "", "postgres"):
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(host="127.0.0.1", port=child.port, user="postgres", database="x", password=password)
    assert stat.S_IMODE((folder / "postgresql.password").stat().st_mode) == 0o600
    assert not list(Path("/tmp").glob(f".s.PGSQL.{child.port}*"))


async def test_a_cluster_that_let_everybody_in_is_closed(folder: Path, opened: Opened) -> None:
    user = servers.postgres_user()
    programs = servers.reachable_programs(servers.postgres_programs(), user)
    servers.make_cluster(programs, folder / "postgresql", user)
    assert "trust" in (folder / "postgresql" / "pg_hba.conf").read_text()
    child = opened(PostgreSqlChild(folder))
    await child.start()
    assert await put_and_count(child) == 1
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{child.port}/postgres")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
async def test_as_root_no_folder_above_the_data_is_opened_to_others(folder: Path, opened: Opened) -> None:
    deep = folder / "one" / "two"
    deep.mkdir(parents=True)
    above = [deep, *deep.parents, Path(sys.prefix).resolve(), *Path(sys.prefix).resolve().parents]
    for path in (deep, deep.parent):
        path.chmod(0o700)
    before = [path.stat().st_mode for path in above]
    child = opened(PostgreSqlChild(deep))
    await child.start()
    assert await put_and_count(child) == 1
    assert [path.stat().st_mode for path in above] == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
def test_programs_that_only_root_can_reach_are_copied_to_where_others_can(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "package" / "install" / "bin"
    hidden.mkdir(parents=True)
    libraries = tmp_path / "hidden" / "package.libs"
    libraries.mkdir()
    (libraries / "word").write_text("found ")
    for path in (hidden, hidden.parent, hidden.parents[1], hidden.parents[2], libraries):
        path.chmod(0o700)
    (hidden / "postgres").write_text('#!/bin/sh\ncat "$(dirname "$0")/../../../package.libs/word"; echo "$0"')
    (hidden / "postgres").chmod(0o700)
    with tempfile.TemporaryDirectory(prefix="carillon-programs-") as cache:
        Path(cache).chmod(0o700)
        copies = {servers.reachable_programs(hidden, "nobody", cache=Path(cache)) for _ in range(2)}
        (copy,) = copies
        ran = subprocess.run(
            [copy / "postgres"], capture_output=True, text=True, check=True, user="nobody", cwd="/", timeout=50
        )
        assert ran.stdout.strip() == f"found {copy / 'postgres'}"
        assert len(list(Path(cache).iterdir())) == 1
    assert servers.reachable_programs(hidden, None) == hidden
