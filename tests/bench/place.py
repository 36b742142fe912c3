"""Where a benchmark runs: a stack of servers of its own, and for each measure a fresh house on them.

Nothing is set but addresses: batches, lanes and time-outs are what a deployment gets when it chooses nothing.
"""

import fcntl
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
from msgspec import Struct

from tests import stack
from tests.bench.topics import Topic
from tests.e2e.house import House, house_on
from tests.stack import Endpoints
from tests.stack.places import HOME_VARIABLE

_SERVERS = ("mongo", "rabbitmq", "postgres", "kafka", "s3")
ADMIN = "bench@example.com"


class Place(Struct, frozen=True):
    """The servers, and how much is asked of them: `devices` in an audience, `repeat` runs of a measure."""

    servers: Endpoints
    devices: int
    repeat: int

    @property
    def pids(self) -> dict[str, int]:
        """The servers' processes."""
        return {name: pid for name in _SERVERS if (pid := stack.pid(name)) is not None}

    @asynccontextmanager
    async def house(self, **settings: str) -> AsyncIterator[House]:
        """Databases, queues and topics of its own, everything set up and nothing running. What is big goes with it."""
        name = f"carillon_{secrets.token_hex(4)}"
        push_database = f"{self.servers.postgres_url.rpartition('/')[0]}/{name}"
        await execute(self.servers.postgres_url, f'CREATE DATABASE "{name}"')
        with tempfile.TemporaryDirectory() as folder:
            environment = self._environment(name, push_database) | settings
            async with house_on(environment, Path(folder), push_database, forks=False) as house:
                yield house
                await Topic(self.servers.kafka_servers, house.topic).delete()
        await execute(self.servers.postgres_url, f'DROP DATABASE "{name}" WITH (FORCE)')

    def _environment(self, name: str, push_database: str) -> dict[str, str]:
        return {
            **self.servers.environment(
                f"{self.servers.mongo_url}/{name}", f"{self.servers.rabbit_url.rstrip('/')}/{name}", push_database
            ),
            "CARILLON_API_PORT": "0",
            "CARILLON_API_FIRST_ADMIN": ADMIN,
            "CARILLON_HEALTH_PORT": "0",
            "CARILLON_SHUTDOWN_READINESS_SECONDS": "0",
            "CARILLON_LOGS_FORMAT": "json",
        }


@contextmanager
def servers(*, keep: bool) -> Iterator[Endpoints]:
    """A stack beside the tests', so that neither disturbs the other's data. It ends with the block, unless kept."""
    folder = Path(tempfile.gettempdir()) / f"carillon-bench-{os.getuid()}"
    os.environ.setdefault(HOME_VARIABLE, str(folder))
    with _alone():
        try:
            yield stack.ensure(*_SERVERS)
        finally:
            if not keep:
                stack.down()


@contextmanager
def _alone() -> Iterator[None]:
    """Two runs at once would measure each other."""
    lock = Path(os.environ[HOME_VARIABLE]).with_suffix(".lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("another benchmark is running on this machine") from None
        yield


async def execute(url: str, *statements: str) -> None:
    """Run statements on a connection of their own."""
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
