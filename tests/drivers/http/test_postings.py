"""A posting leaves once or not at all, and its sender has the last word."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from shared.drivers.http import Blocked, LateOutgoing, NotConnected, PostedAnswer, Posting, Unreachable, Withheld
from shared.drivers.http.client import HttpOutgoing
from tests.drivers.http.receiver import INTERNET, PRIVATE, Receiver, calling, reset, scripted
from tests.drivers.http.test_failures import answers, hangs
from tests.waiting import until

PATIENCE = 2.0


def a_posting(url: str, before_bytes: Callable[[], bool] = lambda: True, seconds: float = 30.0) -> Posting:
    headers = {"Content-Type": "text/plain; charset=utf-8", "Authorization": "Bearer hush"}
    return Posting(url, headers, "hüsh".encode(), seconds, before_bytes)


class Listener:
    """Counts connections and the bytes that arrive on them; answers nothing."""

    def __init__(self) -> None:
        self.connections = 0
        self.bytes = 0
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                self.bytes += len(chunk)
        self.ended.set()


@pytest.fixture
async def unlimited() -> AsyncIterator[HttpOutgoing]:
    async with calling(connections=0) as opened:
        yield opened


async def test_it_arrives_with_its_own_headers_alone(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    receiver.answer = lambda: web.Response(status=201, body=b"\xff" + b"x" * 10_000, headers={"Retry-After": "7"})
    answer = await outgoing.post(a_posting(f"{receiver.url}/send"))
    assert answer == PostedAnswer(201, 7, answer.headers, b"\xff" + b"x" * 10_000)
    assert answer.headers["retry-after"] == "7"
    (got,) = receiver.received
    assert (got.method, got.path, got.body) == ("POST", "/send", "hüsh".encode())
    assert got.header("content-type") == ["text/plain; charset=utf-8"]
    assert got.header("authorization") == ["Bearer hush"]
    assert got.header("webhook-id") == []


async def test_of_a_long_answer_the_beginning_is_read(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    receiver.answer = lambda: web.Response(body=b"x" * 1_000_000)
    assert (await outgoing.post(a_posting(receiver.url))).body == b"x" * 16_384


async def test_the_sender_is_asked_once_with_a_connection_in_hand() -> None:
    listener, asked = Listener(), list[int]()

    def refuse() -> bool:
        asked.append(listener.connections)
        return False

    async with calling() as outgoing, scripted(listener.serve) as address:
        with pytest.raises(Withheld):
            await outgoing.post(a_posting(f"http://{address}/", refuse))
        await outgoing.close()
        await listener.ended.wait()
    assert len(asked) == 1
    assert (listener.connections, listener.bytes) == (1, 0)


async def test_what_is_withheld_keeps_the_connection(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    wanted = iter((True, False, True, False, True))
    for _ in range(5):
        with suppress(Withheld):
            await outgoing.post(a_posting(receiver.url, lambda: next(wanted)))
    assert len(receiver.received) == 3
    assert len({got.peer for got in receiver.received}) == 1


async def test_the_sender_is_not_asked_where_nobody_listens(outgoing: HttpOutgoing) -> None:
    with socket.socket() as unused:
        unused.bind((INTERNET, 0))
        with pytest.raises(NotConnected, match="cannot be connected to"):
            await outgoing.post(a_posting("http://{}:{}/".format(*unused.getsockname()), pytest.fail))


async def test_the_sender_is_not_asked_where_the_target_is_guarded(outgoing: HttpOutgoing) -> None:
    with pytest.raises(Blocked):
        await outgoing.post(a_posting(f"http://{PRIVATE}:80/", pytest.fail))


async def test_waiting_for_a_free_connection_ends_before_the_first_byte() -> None:
    listener = Listener()
    async with calling(connections=1) as outgoing, scripted(listener.serve) as address:
        first = asyncio.create_task(outgoing.post(a_posting(f"http://{address}/", seconds=30)))
        await until(lambda: listener.bytes, "the first posting")
        with pytest.raises(NotConnected, match="gave no answer within"):
            await outgoing.post(a_posting(f"http://{address}/", pytest.fail, seconds=PATIENCE))
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
    assert listener.connections == 1


@pytest.mark.parametrize("script", [hangs, answers(), answers(b"HTTP/1.1 200 O"), answers(b"220 ESMTP\r\n")])
async def test_behind_the_first_byte_nobody_can_tell(unlimited: HttpOutgoing, script: object) -> None:
    async with scripted(script) as address:  # type: ignore[arg-type]
        with pytest.raises(Unreachable) as caught:
            await unlimited.post(a_posting(f"http://{address}/hush", seconds=PATIENCE))
    assert not isinstance(caught.value, NotConnected)
    assert "hush" not in str(caught.value)


async def test_a_closed_client_connects_to_nobody(receiver: Receiver) -> None:
    async with calling() as outgoing:
        late = LateOutgoing(lambda: lambda: outgoing)
        assert (await late.post(a_posting(receiver.url))).status == 200
        await outgoing.close()
        with pytest.raises(NotConnected):
            await late.post(a_posting(receiver.url, pytest.fail))
    assert len(receiver.received) == 1


async def test_a_kept_connection_that_was_closed_is_not_written_to(unlimited: HttpOutgoing) -> None:
    """The other side says goodbye while the event loop looks elsewhere: the bytes go to a new connection."""
    requests = list[bytes]()
    closing = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.readexactly(len("hüsh".encode()))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await closing.wait()

    async with scripted(serve) as address:
        posting = a_posting(f"http://{address}/")
        assert (await unlimited.post(posting)).status == 200
        (kept,) = [each[0] for pool in unlimited._session.connector._conns.values() for each in pool]  # type: ignore[union-attr]
        # The kernel has the goodbye, and the loop, which is not given a turn, has not.
        assert kept.transport is not None
        raw = kept.transport.get_extra_info("socket")
        raw.shutdown(socket.SHUT_RD)
        closing.set()
        assert (await unlimited.post(posting)).status == 200
    assert len(requests) == 2


async def test_a_server_that_closes_every_connection_is_not_besieged(unlimited: HttpOutgoing) -> None:
    connections = 0

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    async with scripted(close) as address:
        for _ in range(20):
            with pytest.raises(Unreachable, match="broke off"):
                await unlimited.post(a_posting(f"http://{address}/"))
    assert connections == 20


@pytest.mark.parametrize("method", ["PUT", "GET"])
async def test_the_driver_repeats_nothing(
    unlimited: HttpOutgoing, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Were a posting a method that aiohttp repeats by itself, its bytes would still leave once."""
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        reset(writer)

    def another_method(self: aiohttp.ClientSession, url: object, **options: object) -> object:
        return self.request(method, url, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(aiohttp.ClientSession, "post", another_method)
    async with scripted(serve) as address:
        with pytest.raises(Unreachable, match="broke off"):
            await unlimited.post(a_posting(f"http://{address}/"))
    assert requests == 1


async def test_head_and_body_are_written_in_the_step_that_asks(unlimited: HttpOutgoing) -> None:
    """Whoever holds up the event loop right behind the question does not hold up the bytes."""
    written = list[int]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def wanted() -> bool:
        (protocol,) = unlimited._session.connector._acquired  # type: ignore[union-attr]
        transport: Any = protocol.transport
        turn = [0]
        asyncio.get_running_loop().call_soon(lambda: turn.__setitem__(0, 1))

        class Noting:
            def __getattr__(self, name: str) -> object:
                return getattr(transport, name)

            def write(self, data: bytes) -> None:
                written.append(turn[0])
                transport.write(data)

            def writelines(self, data: list[bytes]) -> None:
                self.write(b"".join(data))

        protocol.transport = Noting()
        return True

    async with scripted(serve) as address:
        assert (await unlimited.post(a_posting(f"http://{address}/", wanted))).status == 200
    assert written and set(written) == {0}


async def test_a_large_body_that_must_wait_arrives_whole(unlimited: HttpOutgoing, receiver: Receiver) -> None:
    posting = Posting(receiver.url, {}, b"x" * 900_000, 30, lambda: True)
    assert (await unlimited.post(posting)).status == 200
    assert len(receiver.received[0].body) == 900_000


def test_a_posting_shows_nothing() -> None:
    assert "hush" not in repr(a_posting("https://h/?token=hush"))
