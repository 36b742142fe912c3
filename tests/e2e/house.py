"""Carillon as real processes on the servers of one test, and oracles that look at it from outside.

The oracles read Kafka, MongoDB and PostgreSQL themselves; they never ask the program under test whether it did well.
"""

import asyncio
import itertools
import json
import os
import re
import secrets
import signal
import sys
import urllib.request
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pymongo

from services.wiring.process import set_up
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.jobs.moves import fresh_incarnation
from shared.jobs.rules.jobs import Job, JobStatus
from shared.jobs.rules.templates import Template
from shared.push.rules.records import APNS
from shared.runtime.configuration import load
from tests.e2e.forked import Forked, fork
from tests.waiting import SECONDS, until


class Process:
    """One of Carillon's processes, with its log in a file."""

    def __init__(self, child: asyncio.subprocess.Process | Forked, log: Path, faults: Path) -> None:
        self._child = child
        self._log = log
        self._faults = faults

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self._child.pid

    async def ready(self) -> None:
        """Wait until all its components have started."""
        await until(lambda: '"ready"' in self.log or self._child.returncode is not None, "a process to be ready")
        assert self._child.returncode is None, _readable(self.log)

    async def reached(self, point: str) -> None:
        """Wait until the armed fault point has fired."""
        await until(lambda: self._faults.exists() and point in self._faults.read_text().split(), point)

    async def gone(self) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        await until(lambda: self._child.returncode is not None, "a process to end")
        assert self._child.returncode is not None
        return self._child.returncode

    def send(self, number: signal.Signals) -> None:
        if self._child.returncode is None:
            self._child.send_signal(number)

    async def end(self) -> None:
        self.send(signal.SIGCONT)
        self.send(signal.SIGKILL)
        await self.gone()

    async def said(self, pattern: str) -> re.Match[str]:
        """Wait for a line of its log."""
        found: re.Match[str] = await until(lambda: re.search(pattern, self.log), pattern)
        return found


def command_of(service: str) -> list[str]:
    """The words of `carillon` that run it: `feedback-bus` is `feedback --read bus`."""
    return service.replace("feedback-", "feedback --read ").split()


class House:
    """The processes of one test, one app with two locales, and its devices."""

    def __init__(
        self,
        environment: dict[str, str],
        folder: Path,
        push_database: str,
        rooms: Rooms,
        *,
        forks: bool = True,
    ) -> None:
        self.environment = environment
        self.python = sys.executable
        self._forks = forks
        self.servers = rooms.servers
        self.rooms = rooms
        self.feed = rooms.jobs.feed
        self.jobs = rooms.jobs.flow
        self.groups = rooms.jobs.groups
        self.schedules = rooms.clock.schedules
        self.new_app()
        self.folder = folder
        self.push_database = push_database
        self._processes: list[Process] = []
        self._numbers = itertools.count()
        self.session_seconds = float(os.environ.get("CARILLON_TEST_SESSION_SECONDS", "0"))
        self._endings: list[asyncio.Task[None]] = []

    def new_app(self) -> None:
        """Go on with another app, which has no devices yet."""
        self.app = f"t{secrets.token_hex(5)}"
        self.app_id = str(uuid.uuid4())
        self.topic = f"push-{self.app}_apns-massive"

    async def start(self, service: str, tree: Path | None = None, /, *, fault: str = "", **environment: str) -> Process:
        """Start a process, armed with faults; returns when it is ready. `tree` holds the files of another release."""
        process = await self.spawn(service, tree, fault=fault, **environment)
        await process.ready()
        return process

    async def spawn(self, service: str, tree: Path | None = None, /, *, fault: str = "", **environment: str) -> Process:
        number = next(self._numbers)
        log, faults = self.folder / f"{service}-{number}.log", self.folder / f"{service}-{number}.faults"
        armed = {"CARILLON_FAULT": fault, "CARILLON_FAULT_FILE": str(faults)}
        child = await self._child(service, {**os.environ, **self.environment, **armed, **environment}, log, tree)
        process = Process(child, log, faults)
        self._processes.append(process)
        return process

    async def kill(self, process: Process) -> None:
        """SIGKILL, wherever the process is. The stand-in for MongoDB locks for ever what a dead client wrote in an open
        transaction; MongoDB for up to a minute. So all sessions are ended, after `session_seconds`."""
        process.send(signal.SIGKILL)
        assert await process.gone() == -signal.SIGKILL, process.log
        if self.session_seconds:
            self._endings.append(asyncio.create_task(self._end_sessions_later()))
        else:
            await asyncio.to_thread(self._end_sessions)

    async def _end_sessions_later(self) -> None:
        await asyncio.sleep(self.session_seconds)
        await asyncio.to_thread(self._end_sessions)

    def _end_sessions(self) -> None:
        client: pymongo.MongoClient[dict[str, Any]]
        with pymongo.MongoClient(self.environment["CARILLON_STORE_URL"], timeoutMS=SECONDS * 1_000) as client:
            client.admin.command("killAllSessions", [])

    async def _child(
        self, service: str, environment: dict[str, str], log: Path, tree: Path | None
    ) -> asyncio.subprocess.Process | Forked:
        # A library is only loaded before others by a program that starts.
        if self._forks and tree is None and "LD_PRELOAD" not in environment:
            return fork(command_of(service), environment, log)
        with log.open("wb") as output:
            return await asyncio.create_subprocess_exec(
                self.python,
                "-m",
                "services",
                *command_of(service),
                env=environment,
                cwd=tree,
                stdout=output,
                stderr=output,
            )

    async def devices(self, count: int, service: str = APNS) -> None:
        """Fill the app's table: users `u<n>`, every third one Portuguese."""
        table = f"{self.app}_{service}"
        connection = await asyncpg.connect(self.push_database)
        await connection.execute(
            f'CREATE TABLE "{table}" (seq_id bigint PRIMARY KEY, user_id text, token text, locale text, '
            "region text, tz text)"
        )
        await connection.copy_records_to_table(
            table,
            records=(
                (n, f"u{n}", f"{n:064x}", "pt" if n % 3 == 0 else "en", "BR", "-0300") for n in range(1, count + 1)
            ),
        )
        await connection.execute("ANALYZE")
        await connection.close()
        for locale in ("en", "pt"):
            await self.template("like", locale, {"alert": "{{who}}"})

    async def change_devices(self, statement: str) -> None:
        """Run SQL on the push database; `{table}` stands for the app's table of APNS."""
        connection = await asyncpg.connect(self.push_database)
        await connection.execute(statement.format(table=f'"{self.app}_apns"'))
        await connection.close()

    async def template(self, name: str, locale: str, body: dict[str, Any]) -> None:
        await self.servers.store.templates.add(
            Template(id=str(uuid.uuid4()), app_id=self.app_id, name=name, locale=locale, body=body)
        )

    async def file(self, content: bytes, name: str = "users.csv") -> str:
        """Upload a file; its path, for `csv_path`."""
        bucket = f"{self.environment['CARILLON_BLOBS_ENDPOINT_URL']}/{self.servers.blobs.bucket}"
        request = urllib.request.Request(bucket, method="PUT")
        (await asyncio.to_thread(urllib.request.urlopen, request, timeout=30)).close()
        path = f"{self.servers.blobs.bucket}/{self.app}/{name}"
        await self.servers.blobs.write(path, _once(content))
        return path

    async def content(self, path: str) -> bytes:
        """What stands in a file."""
        file = await self.servers.blobs.stat(path)
        return b"".join([chunk async for chunk in self.servers.blobs.read(file, 0, file.size)])

    def job(self, **fields: Any) -> Job:
        standard: dict[str, Any] = {
            "service": APNS,
            "template_names": ("like",),
            "context": {"who": "Ana"},
        }
        return Job(
            id=str(uuid.uuid4()),
            incarnation=fresh_incarnation(),
            app_id=self.app_id,
            app_name=self.app,
            created_by="test@example.com",
            group_id=str(uuid.uuid4()),
            created_at=self.servers.clock.now_ns(),
            **(standard | fields),
        )

    async def post(self, **fields: Any) -> str:
        """Start a job as the API does; its key."""
        job, _ = await self.jobs.start(self.job(**fields))
        return job.key

    async def key_of(self, job_id: str) -> str:
        """The key of the job that has this id now."""
        job = await self.servers.store.jobs.view(job_id)
        assert job is not None
        return job.key

    async def closed(self, job_id: str, *, seconds: float = SECONDS) -> Job:
        """Wait until nothing is left to do for the job."""

        async def is_closed() -> bool:
            job = await self.servers.store.jobs.get(job_id)
            return job is not None and not job.open

        try:
            await until(is_closed, f"job {job_id} to close", seconds)
        except TimeoutError:
            found = await self.servers.store.jobs.get(job_id)
            raise AssertionError(f"not closed: {found}\n{self.logs()}") from None
        job = await self.servers.store.jobs.get(job_id)
        assert job is not None
        return job

    async def sent_per_device(self, expected: int) -> Counter[str]:
        """How many committed records each device has on Kafka: waits for `expected` in all, then looks for more."""
        return Counter(record["DeviceToken"] for record in await self.records(expected))

    async def records(self, expected: int, *, topic: str = "") -> list[Any]:
        """The committed records of a topic, by default the app's: waits for `expected`, then looks for more."""
        records: list[Any] = []
        async with self.servers.stream.reader(topic or self.topic, group=f"oracle-{secrets.token_hex(4)}") as reader:

            async def has_read_all() -> bool:
                records.extend(await _read(reader.read))
                return len(records) >= expected

            await until(has_read_all, f"{expected} records")
            records += await _read(reader.read)
        return records

    async def exactly_once(self, job_id: str, devices: int, *, seconds: float = SECONDS) -> None:
        """The job is completed, its totals are exact, and every device has one record."""
        job = await self.closed(job_id, seconds=seconds)
        assert job.status is JobStatus.COMPLETED, job
        assert job.totals is not None
        assert (job.totals.planned, job.totals.sent, job.totals.failed) == (devices, devices, 0)
        assert job.totals.batches == job.totals.settled == job.plan.end
        per_device = await self.sent_per_device(devices)
        assert len(per_device) == devices
        assert set(per_device.values()) == {1}

    def logs(self) -> str:
        return "\n".join(f"--- {process._log.name}\n{_readable(process.log)}" for process in self._processes)

    async def end(self) -> None:
        await asyncio.gather(*(process.end() for process in self._processes))
        for ending in self._endings:
            ending.cancel()
        if self._endings:
            await asyncio.to_thread(self._end_sessions)


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _readable(log: str) -> str:
    """The last lines of a JSON log, each exception cut to where it was raised."""
    lines = []
    for line in log.splitlines()[-40:]:
        try:
            event = json.loads(line)
        except ValueError:
            lines.append(line)
            continue
        where = [part for part in event.pop("exception", "").splitlines() if part][-8:]
        lines += [" ".join(f"{key}={value}" for key, value in event.items()), *(f"      {part}" for part in where)]
    return "\n".join(lines)


async def _read(read: Callable[[float], Any]) -> list[Any]:
    return [json.loads(value) for chunk in await read(1.0) for value in chunk.values]


@asynccontextmanager
async def house_on(
    environment: dict[str, str], folder: Path, push_database: str, *, forks: bool = True
) -> AsyncIterator[House]:
    """A house with everything set up and nothing running. Unless it `forks`, its processes start as an operator's."""
    servers = Servers(load(environment), service="test")
    rooms = Rooms(servers)
    await set_up(rooms)
    house = House(environment, folder, push_database, rooms, forks=forks)
    try:
        yield house
    finally:
        await house.end()
        await servers.close()
