"""The command as a program, beside a real API: the application on the real database, behind the real server."""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from openapi_schema_validator import OAS31Validator

from shared.runtime.serving import HttpServer
from tests.e2e.forked import fork_command
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House, house
from tests.waiting import until

__all__ = ["house"]

ROOT = Path(__file__).parents[2]
SECONDS = 50.0
"""The limit of each wait for a program."""
CONTEXTS = """
current = "test"
[contexts.test]
url = "{url}"
user = "{user}"
"""


@dataclass
class Ended:
    """What a command has left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Running:
    """A program that has been started."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None and process.stderr is not None
        self.process, self._out, self._err = process, process.stdout, process.stderr

    async def line(self) -> str:
        """The next line on stdout."""
        return (await asyncio.wait_for(self._out.readline(), SECONDS)).decode()

    async def told(self, part: str) -> str:
        """The next line on stderr that contains this."""
        seen, deadline = list[str](), time.monotonic() + SECONDS
        while line := (await asyncio.wait_for(self._err.readline(), deadline - time.monotonic())).decode():
            seen.append(line)
            if part in line:
                return line
        raise AssertionError(seen)

    async def ended(self, given: str = "") -> Ended:
        """What follows until its end."""
        out, err = await asyncio.wait_for(self.process.communicate(given.encode()), SECONDS)
        assert self.process.returncode is not None
        return Ended(self.process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def started(*command: str, environment: dict[str, str], folder: Path) -> AsyncIterator[Running]:
    """A program, which is killed if it has not ended by itself."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=folder, preexec_fn=be_interruptible,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.wait_for(process.wait(), SECONDS)


def be_interruptible() -> None:
    """As a shell starts a command in the foreground; it starts one in the background to ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class Program:
    """The command with a configuration and a folder of its own."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def contexts(self) -> Path:
        return self.home / "carillon" / "contexts.toml"

    def keep(self, url: str, *, user: str = ADMIN, more: str = "") -> None:
        """Write the contexts' file."""
        self.contexts.parent.mkdir(exist_ok=True)
        self.contexts.touch(0o600)
        self.contexts.write_text(CONTEXTS.format(url=url, user=user) + more)

    def variables(self, **more: str) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("CARILLON_", "_CARILLON_"))}
        own |= {
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "client"))),
            "XDG_CONFIG_HOME": str(self.home),
            "HOME": str(self.home),
            "TZ": "UTC",
        }
        return own | self.environment | more

    def running(self, *words: str, **environment: str) -> AbstractAsyncContextManager[Running]:
        command = (sys.executable, "-m", "services", *words)
        return started(*command, environment=self.variables(**environment), folder=self.home)

    async def run(self, *words: str, given: str = "", **environment: str) -> Ended:
        """As `running`, to its end. It is forked from a process that has imported the program: that is much quicker."""
        with tempfile.TemporaryDirectory() as folder:
            stdin, out, err = (Path(folder) / name for name in ("in", "out", "err"))
            stdin.write_text(given)
            process = fork_command(words, self.variables(**environment), self.home, given=stdin, out=out, err=err)
            try:
                await until(lambda: process.returncode is not None, f"the end of carillon {' '.join(words)}")
                assert process.returncode is not None
                return Ended(process.returncode, out.read_text(), err.read_text())
            finally:
                if process.returncode is None:
                    process.send_signal(signal.SIGKILL)

    async def done(self, *words: str, given: str = "", **environment: str) -> Ended:
        """As `run`, for what must succeed."""
        ended = await self.run(*words, given=given, **environment)
        assert ended.code == 0, (words, ended.out, ended.err)
        return ended


@dataclass
class Document:
    """The OpenAPI document, which says what answers look like."""

    content: dict[str, Any]

    def has(self, method: str, path: str) -> bool:
        return method in self.content["paths"].get(path, {})

    def check(self, method: str, path: str, answer: Any, status: str = "200") -> None:
        """Raise where the answer is none of this route."""
        media = self.content["paths"][path][method]["responses"][status]["content"]["application/json"]
        whole = {**media["schema"], "components": self.content["components"]}
        OAS31Validator(whole).validate(answer)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(house: House) -> AsyncIterator[str]:
    server = HttpServer("api", house.admin.app, host="127.0.0.1", port=0, proxy_headers=False)
    await server.start()
    yield f"http://127.0.0.1:{server.port}"
    await server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def document(house: House) -> Document:
    return Document((await house.admin.get("/openapi.json")).json)


@pytest.fixture
def bare(tmp_path: Path) -> Program:
    """The command where no deployment is named."""
    return Program(tmp_path)


@pytest.fixture
def cli(bare: Program, url: str) -> Program:
    """The command of an admin of the API."""
    bare.keep(url)
    return bare
