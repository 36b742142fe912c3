"""`carillon api` as a real process before peers who mean harm: it stays within the memory that a container gives it,
goes on answering, and its health port with it."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.house import House, Process
from tests.waiting import until
from tests.tiers import and_rarely

pytestmark = pytest.mark.native

MEBIBYTE = 2**20
CONTAINER_BYTES = 512 * MEBIBYTE  # as the manifests say
ADMIN = "admin@example.com"
HEADERS = f"host: 127.0.0.1\r\nx-forwarded-email: {ADMIN}\r\n"
HALF_HEAD = b"GET /apps HTTP/1.1\r\nhost: 127.0.0.1\r\nx-"
HALF_BODY = f"POST /apps HTTP/1.1\r\n{HEADERS}content-length: 1000\r\n\r\n{{".encode()


class Target:
    """The API's process and its two ports."""

    def __init__(self, process: Process, api: int, health: int) -> None:
        self.process = process
        self.api = api
        self.health = health

    async def exchange(self, *parts: bytes, port: int = 0) -> bytes:
        """What is answered to the parts on one connection, as far as it is heard; empty for one that is cut off."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.api)
        with suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
        answer = b""
        with suppress(ConnectionError):
            async with asyncio.timeout(60):
                answer = await reader.read(4096)
        writer.transport.abort()
        return answer

    async def well(self) -> None:
        """It answers on both ports, and never was over what its container gives it."""
        async with asyncio.timeout(20):
            alive = await self.exchange(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", port=self.health)
            apps = await self.exchange(f"GET /apps HTTP/1.1\r\n{HEADERS}\r\n".encode())
        assert alive.startswith(b"HTTP/1.1 200")
        assert apps.startswith(b"HTTP/1.1 200")
        assert self.most_memory() < CONTAINER_BYTES

    def most_memory(self) -> int:
        """The most that was resident at any time."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024


@pytest.fixture
def files() -> Iterator[None]:
    """As many open files as this test's own side of thousands of connections needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 10_000)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
async def target(house: House, files: None) -> AsyncIterator[Target]:
    process = await house.start("api", CARILLON_API_FIRST_ADMIN=ADMIN, LD_PRELOAD="")
    ports = {}
    for line in process.log.splitlines():
        event = json.loads(line)
        if event["event"] == "listening":
            ports[event["server"]] = int(event["port"])
    target = Target(process, ports["api"], ports["health"])
    await target.well()
    yield target
    await target.well()
    assert process._child.returncode is None
    assert "Traceback" not in process.log


@pytest.mark.parametrize("mebibytes", and_rarely(100, rarely=(10,)))
@pytest.mark.parametrize("shape", [b"a: b\r\n" * 10_000, b"v" * 60_000], ids=["many fields", "one field"])
async def test_headers_without_end(target: Target, mebibytes: int, shape: bytes) -> None:
    parts = [shape] * (mebibytes * MEBIBYTE // len(shape))
    before = target.most_memory()
    for port in (target.api, target.health):
        answer = await target.exchange(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ", *parts, port=port)
        assert answer.startswith(b"HTTP/1.1 431")
    assert target.most_memory() - before < 20 * MEBIBYTE


@pytest.mark.slow
@pytest.mark.parametrize(("sending", "number"), [(HALF_HEAD, 3_000), (HALF_BODY, 1_000)], ids=["heads", "bodies"])
@pytest.mark.parametrize("port", and_rarely("api", rarely=("health",)))
async def test_thousands_who_never_come_to_an_end(target: Target, sending: bytes, number: int, port: str) -> None:
    writers = []
    for _ in range(number):
        _, writer = await asyncio.open_connection("127.0.0.1", getattr(target, port))
        writer.write(sending)
        writers.append(writer)
    await target.well()
    assert len(list(Path(f"/proc/{target.process.pid}/fd").iterdir())) < 700
    for writer in writers:
        writer.transport.abort()


@pytest.mark.parametrize("number", and_rarely(24, rarely=(8,)))
async def test_large_bodies_at_once(target: Target, number: int) -> None:
    body = b"[" + b",".join(b'{"key":"%d","payload":"%s"}' % (n, b"x" * 3_060) for n in range(10_600)) + b"]"
    assert 31 * MEBIBYTE < len(body) < 32 * MEBIBYTE
    head = f"POST /schedules/bulk HTTP/1.1\r\n{HEADERS}content-length: {len(body)}\r\n\r\n".encode()
    answers = await asyncio.gather(*(target.exchange(head, body) for _ in range(number)))
    print([answer[:13] for answer in answers], target.most_memory() // MEBIBYTE)
    assert {answer[:12] for answer in answers} <= {b"HTTP/1.1 422", b"HTTP/1.1 503"}
    assert b"HTTP/1.1 422" in {answer[:12] for answer in answers}


async def test_a_process_without_free_files_goes_on(target: Target) -> None:
    held = len(list(Path(f"/proc/{target.process.pid}/fd").iterdir()))
    resource.prlimit(target.process.pid, resource.RLIMIT_NOFILE, (held + 5, held + 5))
    writers = []
    for _ in range(100):
        _, writer = await asyncio.open_connection("127.0.0.1", target.api)
        writer.write(HALF_HEAD)
        writers.append(writer)
    await asyncio.sleep(1)
    for writer in writers:
        writer.transport.abort()
    await until(lambda: len(list(Path(f"/proc/{target.process.pid}/fd").iterdir())) <= held, "the connections to go")
