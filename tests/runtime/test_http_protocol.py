"""What peers cannot do to a server: raw bytes over real sockets, before an application that is told when to answer."""

import asyncio
import itertools
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from shared.runtime.http_protocol import Limits, OpenConnections
from shared.runtime.metrics import REGISTRY
from shared.runtime.serving import HttpServer, affordable_connections
from tests.waiting import until

QUICK = Limits(connections=4, head_seconds=0.2, stall_seconds=0.4, unread_bytes=20 * 2**20)
LASTING = Limits(connections=4, head_seconds=600, stall_seconds=600)
WITHIN_SECONDS = 50.0
GET = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
HALF_HEAD = b"GET / HTTP/1.1\r\nhost: he"
HALF_BODY = b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 100\r\n\r\nhalf"
CHUNKED = b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n"
_numbers = itertools.count()


class App:
    """Answers with its `answer` when it has read the whole body; notes the headers that it then sees."""

    def __init__(self) -> None:
        self.answer = b"done"
        self.headers: list[list[tuple[bytes, bytes]]] = []
        self.body_bytes = 0
        self.disconnected = asyncio.Event()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.arrived = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("no lifespan")
        self.arrived.set()
        await self.may_read.wait()
        message = await receive()
        while message["type"] == "http.request" and message["more_body"]:
            self.body_bytes += len(message["body"])
            message = await receive()
        if message["type"] == "http.disconnect":
            self.disconnected.set()
            return
        self.headers.append(list(scope["headers"]))
        length = str(len(self.answer)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": self.answer})


class Served:
    """A server of its own with the app, and its peers."""

    def __init__(self, limits: Limits) -> None:
        self.app = App()
        self.name = f"test-{next(_numbers)}"
        self.server = HttpServer(self.name, self.app, host="127.0.0.1", port=0, limits=limits)

    async def connect(self, sending: bytes = b"", *, ahead: int = 2**26) -> "Peer":
        """A peer that takes so much from the network before a test reads it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port, limit=ahead)
        peer = Peer(reader, writer)
        peer.send(sending)
        return peer

    async def exchange(self, sending: bytes) -> bytes:
        """All that comes back on a connection of its own, until the server closes it."""
        async with self.peer(sending) as peer:
            return await peer.rest()

    @asynccontextmanager
    async def peer(self, sending: bytes = b"") -> AsyncIterator["Peer"]:
        peer = await self.connect(sending)
        try:
            yield peer
        finally:
            peer.close()

    def refused(self, reason: str) -> float:
        return REGISTRY.get_sample_value("carillon_http_refusals_total", {"server": self.name, "reason": reason}) or 0.0


class Peer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self, size: int = 4) -> bytes:
        """The next answer, whose body has so many bytes: status and body."""
        async with asyncio.timeout(WITHIN_SECONDS):
            head = await self._reader.readuntil(b"\r\n\r\n")
            return head.split(b" ")[1] + b" " + await self._reader.readexactly(size)

    async def read(self, size: int) -> int:
        """Take at most so many bytes; how many there were."""
        return len(await self._reader.read(size))

    async def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        received = b""
        async with asyncio.timeout(WITHIN_SECONDS):
            with suppress(ConnectionError):
                while part := await self._reader.read(2**20):
                    received += part
        return received

    def close(self) -> None:
        self._writer.transport.abort()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served(QUICK)
    await served.server.start()
    yield served
    served.app.may_read.set()
    await served.server.stop()


@pytest.fixture
async def lasting() -> AsyncIterator[Served]:
    """As `served`, for peers who may take their time."""
    served = Served(LASTING)
    await served.server.start()
    yield served
    await served.server.stop()


@pytest.fixture
async def patient() -> AsyncIterator[Served]:
    served = Served(Limits())
    await served.server.start()
    yield served
    await served.server.stop()


def status(answer: bytes) -> bytes:
    return answer.partition(b"\r\n")[0].partition(b" ")[2][:3]


TOO_LARGE = {
    "one header of 100 KiB": b"GET / HTTP/1.1\r\na: " + b"v" * 100_000,
    "a name of 100 KiB": b"GET / HTTP/1.1\r\n" + b"n" * 100_000,
    "a path of 100 KiB": b"GET /" + b"p" * 100_000,
    "a head of 64 KiB in fields of 1 KiB": b"GET / HTTP/1.1\r\n" + b"".join(b"a: %01020d\r\n" % n for n in range(66)),
    "101 fields": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n",
    "empty lines before a request": b"\r\n" * 40_000,
    "an extension of a chunk": CHUNKED + b"4;" + b"e" * 200_000,
    "a field behind the body": CHUNKED + b"4\r\nbody\r\n0\r\na: " + b"v" * 200_000,
    "101 fields behind the body": CHUNKED + b"4\r\nbody\r\n0\r\n" + b"a: b\r\n" * 101 + b"b" * 200_000,
}


@pytest.mark.parametrize("sending", TOO_LARGE.values(), ids=TOO_LARGE.keys())
async def test_too_much_beside_the_body_is_refused_and_not_kept(patient: Served, sending: bytes) -> None:
    assert status(await patient.exchange(sending)) == b"431"
    assert patient.refused("431") == 1
    assert not patient.app.headers


async def test_headers_within_the_limits_arrive_whole(patient: Served) -> None:
    fields = [(b"f%d" % n, b"v" * 600) for n in range(99)]
    head = b"GET / HTTP/1.1\r\nhost: here\r\n" + b"".join(b"%b: %b\r\n" % field for field in fields) + b"\r\n"
    assert 60_000 < len(head) < 65_536
    async with patient.peer(head) as peer:
        assert await peer.answer() == b"200 done"
        assert patient.app.headers == [[(b"host", b"here"), *fields]]
        for start in range(0, len(head), 1_000):  # and again, in pieces, on the same connection
            peer.send(head[start : start + 1_000])
        assert await peer.answer() == b"200 done"
        assert patient.app.headers[1] == patient.app.headers[0]


async def test_a_large_body_arrives_and_leaves_room_for_the_next_head(patient: Served) -> None:
    body = b"b" * 5_000_000
    post = b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    async with patient.peer(post + GET + post) as peer:
        assert [await peer.answer() for _ in range(3)] == [b"200 done"] * 3


async def test_many_small_chunks_are_a_body_like_any_other(patient: Served) -> None:
    async with patient.peer(CHUNKED + b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n") as peer:
        assert await peer.answer() == b"200 done"


async def test_a_field_behind_the_body_is_no_header(patient: Served) -> None:
    trailer = b"x-forwarded-email: admin@example.com\r\n\r\n"
    async with patient.peer(CHUNKED + b"4\r\nbody\r\n0\r\n" + trailer) as peer:
        assert await peer.answer() == b"200 done"
    assert b"x-forwarded-email" not in dict(patient.app.headers[0])


async def test_what_is_no_http_is_answered_as_before(patient: Served) -> None:
    assert status(await patient.exchange(b"nonsense\r\n\r\n")) == b"400"


async def test_a_head_has_its_time(served: Served) -> None:
    assert status(await served.exchange(HALF_HEAD)) == b"408"
    async with served.peer(GET + HALF_HEAD) as peer:
        assert await peer.answer() == b"200 done"
        assert status(await peer.rest()) == b"408"


async def test_who_says_nothing_is_let_go_without_a_word(served: Served) -> None:
    assert await served.exchange(b"") == b""
    assert await served.exchange(b"\r\n") == b""


@pytest.mark.parametrize("more", [b"", b"."])
async def test_a_body_has_its_time_however_it_trickles(served: Served, more: bytes) -> None:
    async with served.peer(HALF_BODY) as peer:

        async def trickle() -> None:
            while True:
                peer.send(more)
                await asyncio.sleep(0.1)

        trickling = asyncio.create_task(trickle())
        assert status(await peer.rest()) == b"408"
        trickling.cancel()
    await served.app.disconnected.wait()


@pytest.mark.alone
async def test_a_slow_body_that_advances_is_waited_for(served: Served) -> None:
    async with served.peer(b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 800000\r\n\r\n") as peer:
        for _ in range(40):  # three times as long as a body may stand still, and two looks at it
            peer.send(b"x" * 20_000)
            await asyncio.sleep(0.06)
        assert await peer.answer() == b"200 done"


@pytest.mark.slow
async def test_time_does_not_count_while_the_peer_waits_for_us() -> None:
    served = Served(Limits(stall_seconds=1.5))
    await served.server.start()
    served.app.may_read.clear()
    body = b"x" * 2_000_000
    async with served.peer(b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 2000000\r\n\r\n" + body) as peer:
        await served.app.arrived.wait()
        await asyncio.sleep(5.0)
        served.app.may_read.set()
        assert await peer.answer() == b"200 done"
    await served.server.stop()


async def test_who_does_not_read_its_answer_is_cut_off(served: Served) -> None:
    served.app.answer = b"a" * 15_000_000
    peer = await served.connect(GET, ahead=1_000)
    await until(lambda: served.refused("cut_off") == 1)
    peer.close()


@pytest.mark.alone
async def test_a_slow_reader_that_advances_is_waited_for(served: Served) -> None:
    served.app.answer = b"a" * 15_000_000
    peer = await served.connect(GET, ahead=1_000)
    began, received = time.monotonic(), 0
    while received < 15_000_000:
        received += await peer.read(200_000)
        await asyncio.sleep(0.02)
    assert time.monotonic() - began > 2.0, "twice as long as a reader may stand still"
    peer.close()


async def test_answers_that_nobody_reads_stay_within_memory() -> None:
    served = Served(Limits(unread_bytes=20 * 2**20))
    served.app.answer = b"a" * 15_000_000
    await served.server.start()
    peers = [await served.connect(GET, ahead=1_000) for _ in range(6)]
    await until(lambda: served.refused("cut_off") >= 4)
    for peer in peers:
        peer.close()
    await served.server.stop()


async def test_a_newcomer_takes_the_place_of_who_keeps_us_waiting_longest(lasting: Served) -> None:
    slow = []
    for half in (HALF_BODY, HALF_HEAD, b"", HALF_HEAD):
        slow.append(await lasting.connect(half))
        await asyncio.sleep(0.05)
    async with lasting.peer(GET) as peer:
        assert await peer.answer() == b"200 done"
    assert await slow[0].rest() == b""
    assert lasting.refused("cut_off") == 1
    for each in slow:
        each.close()


async def test_who_is_owed_an_answer_keeps_its_place(served: Served) -> None:
    served.app.may_read.clear()
    peers = []
    for _ in range(4):
        served.app.arrived.clear()
        peers.append(await served.connect(GET))
        await served.app.arrived.wait()
    assert status(await served.exchange(GET)) == b"503"
    served.app.may_read.set()
    assert [await peer.answer() for peer in peers] == [b"200 done"] * 4
    async with served.peer(GET) as peer:
        assert await peer.answer() == b"200 done"
    for each in peers:
        each.close()


async def test_a_few_requests_may_follow_at_once_and_no_thousand(patient: Served) -> None:
    async with patient.peer(GET * 10) as peer:
        assert [await peer.answer() for _ in range(10)] == [b"200 done"] * 10
    assert await patient.exchange(GET * 1_000) == b""
    assert patient.refused("cut_off") == 1


async def test_what_is_refused_is_never_taken_for_another_request_s_answer(patient: Served) -> None:
    patient.app.may_read.clear()
    async with patient.peer(GET) as peer:
        await patient.app.arrived.wait()
        peer.send(b"GET /" + b"p" * 100_000)
        assert await peer.rest() == b""
    patient.app.may_read.set()


async def test_slow_peers_do_not_hold_up_the_end(served: Served) -> None:
    async with served.peer(HALF_BODY), served.peer(HALF_HEAD):
        await served.app.arrived.wait()
        async with asyncio.timeout(WITHIN_SECONDS):
            await served.server.stop()


def test_connections_leave_half_of_the_files_to_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, affordable in ((100, 50), (10_000, 512), (resource.RLIM_INFINITY, 512)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert affordable_connections(512) == affordable


def test_there_is_nobody_to_end_where_nobody_is() -> None:
    OpenConnections("test", QUICK).end_overdue(0.0)
