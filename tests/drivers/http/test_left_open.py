"""What a hostile server may keep open here once its call is over: nothing."""

import resource
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.core.errors import Unavailable
from shared.drivers.http import NotConnected, Posting, Unreachable
from shared.drivers.http.client import HttpOutgoing
from shared.drivers.http.guard import Guard
from tests.drivers.http.receiver import INTERNET, Receiver, a_call, calling, self_signed
from tests.waiting import until

LIMIT = 15.0  # half of what asyncio gives a peer to end TLS


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """The sockets that the client makes."""
    made, make = list[socket.socket](), Guard.socket

    def note(guard: Guard, addr_info: tuple[Any, ...]) -> socket.socket:
        made.append(make(guard, addr_info))
        return made[-1]

    monkeypatch.setattr(Guard, "socket", note)
    return made


async def _closed(opened: list[socket.socket]) -> None:
    await until(lambda: all(one.fileno() < 0 for one in opened), "the sockets to be closed", LIMIT)


@contextmanager
def _peer(answer: bytes, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Answers one request and does nothing more: it neither reads on nor closes, and ends no TLS."""
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        try:
            raw, _ = listener.accept()
        except OSError:  # nobody has called
            return
        peer = tls.wrap_socket(raw, server_side=True) if tls is not None else raw
        peer.recv(65_536)
        peer.sendall(answer) if answer else None
        over.wait()
        peer.close()

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        listener.bind((INTERNET, 0))
        listener.listen()
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        try:
            yield "{}:{}".format(*listener.getsockname())
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@asynccontextmanager
async def _trusting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[HttpOutgoing, ssl.SSLContext]]:
    served = self_signed(folder)
    trusted = ssl.create_default_context(cafile=folder / "own.pem")
    trusted.check_hostname = False
    async with calling() as outgoing:
        monkeypatch.setattr(outgoing._session.connector, "_ssl", trusted)
        yield outgoing, served


@pytest.mark.parametrize("length", [100_000, 0])
async def test_a_server_that_does_not_end_tls_holds_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[socket.socket], length: int
) -> None:
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n".encode() + b"x" * min(
        length, 4_096
    )
    async with _trusting(tmp_path, monkeypatch) as (outgoing, served):
        with _peer(answer, served) as address:
            assert (await outgoing.call(a_call(f"https://{address}/"))).accepted
            await _closed(opened)


@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_a_server_that_does_not_read_holds_no_connection(opened: list[socket.socket]) -> None:
    with _peer(b"") as address:
        async with calling(timeout_seconds=1) as outgoing:
            with pytest.raises(Unreachable):
                await outgoing.call(a_call(f"http://{address}/", body=b"x" * 16 * 2**20))
            await _closed(opened)


@contextmanager
def _no_files_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as next_one:
        lowest = next_one.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_where_this_process_has_no_files_left_the_receiver_is_not_to_blame(receiver: Receiver) -> None:
    async with calling() as outgoing:
        with _no_files_left():
            with pytest.raises(Unavailable, match="Too many open files"):
                await outgoing.call(a_call(receiver.url))
            with pytest.raises(NotConnected, match="Too many open files"):
                await outgoing.post(Posting(receiver.url, {}, b"{}", LIMIT, lambda: True))
        assert (await outgoing.call(a_call(receiver.url))).accepted
    assert len(receiver.received) == 1
