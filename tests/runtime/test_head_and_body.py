"""Answers go out in one piece, whatever they are made of and however they end."""

import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from shared.runtime.http_protocol import HeadAndBody, Limits
from tests.runtime.test_http_protocol import Served
from tests.waiting import until

LENGTH = b"content-length"


class Transport:
    """Notes what is written, a list for each system call."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed_behind: list[bytes] | None = None

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writelines(self, parts: Sequence[bytes]) -> None:
        self.written.append(b"".join(parts))

    def close(self) -> None:
        self.closed_behind = list(self.written)

    def is_closing(self) -> bool:
        return self.closed_behind is not None


class Flow:
    """Nobody pauses."""

    write_paused = False


class Answer:
    """An answer to a request, message by message."""

    def __init__(self, method: str = "GET", *, keep_alive: bool = True) -> None:
        self.transport = Transport()
        self.ended_behind: list[bytes] | None = None
        cycle: Any = object.__new__(RequestResponseCycle)
        cycle.__dict__ |= {
            "scope": {"method": method}, "transport": self.transport, "flow": Flow(), "access_log": False,
            "default_headers": [], "on_response": self._end, "disconnected": False, "keep_alive": keep_alive,
            "response_started": False, "response_complete": False, "chunked_encoding": None,
            "expected_content_length": 0, "waiting_for_100_continue": False,
        }  # fmt: skip
        self.cycle = cycle
        cycle.message_event = _Event()
        HeadAndBody.join(cycle)

    def _end(self) -> None:
        self.ended_behind = list(self.transport.written)

    async def start(self, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
        await self.cycle.send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def body(self, data: bytes, *, more: bool = False) -> None:
        await self.cycle.send({"type": "http.response.body", "body": data, "more_body": more})


class _Event:
    def set(self) -> None:
        pass


async def test_head_and_body_are_one_write() -> None:
    answer = Answer()
    await answer.start(200, (LENGTH, b"4"))
    assert answer.transport.written == []
    await answer.body(b"done")
    assert answer.transport.written == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone"]
    assert answer.ended_behind == answer.transport.written


async def test_parts_go_out_as_they_come_the_first_one_with_the_head() -> None:
    answer = Answer()
    await answer.start()
    await answer.body(b"one", more=True)
    assert [part[-8:] for part in answer.transport.written] == [b"3\r\none\r\n"]
    await answer.body(b"two", more=True)
    await answer.body(b"")
    assert answer.transport.written[1:] == [b"3\r\ntwo\r\n", b"0\r\n\r\n"]


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_a_head_without_a_body_goes_out_at_the_end(method: str, status: int) -> None:
    answer = Answer(method)
    await answer.start(status)
    await answer.body(b"")
    [head] = answer.transport.written
    assert head.endswith(b"\r\n\r\n")
    assert answer.ended_behind == [head]


async def test_the_connection_is_closed_behind_the_answer() -> None:
    answer = Answer("HEAD", keep_alive=False)
    await answer.start()
    await answer.body(b"")
    assert answer.transport.closed_behind == answer.transport.written != []
    broken = Answer()
    await broken.start(200, (LENGTH, b"4"))
    broken.cycle.transport.close()
    assert broken.transport.closed_behind == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"]


async def test_what_comes_before_an_answer_is_not_kept_back() -> None:
    answer = Answer()
    answer.cycle.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert answer.transport.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    await answer.start(200, (LENGTH, b"4"))
    await answer.body(b"done")
    assert len(answer.transport.written) == 2


@asynccontextmanager
async def serve() -> AsyncIterator[Served]:
    made = Served(Limits())
    await made.server.start()
    yield made
    await made.server.stop()


async def test_pipelined_answers_come_in_order_over_a_socket() -> None:
    head = b"HEAD / HTTP/1.1\r\nhost: here\r\n\r\n"
    get = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n"
    async with serve() as made:
        answers = (await made.exchange(head + get + head + get + last)).split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert [answer.endswith(b"\r\n\r\ndone") for answer in answers] == [False, True, False, True, True]


async def test_what_was_answered_is_freed_without_the_garbage_collector() -> None:
    """The collector of a service looks rarely, and a request may hold 32 MiB."""
    post = b"POST / HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbody"
    async with serve() as made:
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                assert (await made.exchange(post)).endswith(b"done")
            # The peer may have read the answer's end before whoever gave it has returned.
            await until(
                lambda: not any(type(each) is RequestResponseCycle for each in gc.get_objects()),
                "the answered to be freed",
            )
        finally:
            gc.enable()


async def test_a_peer_that_waits_to_be_told_to_go_on_is_told() -> None:
    post = b"POST / HTTP/1.1\r\nhost: here\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: 4\r\n\r\n"
    async with serve() as made, made.peer(post) as peer:
        assert await peer.read(2**10) == len(b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.send(b"body")
        assert (await peer.rest()).endswith(b"\r\n\r\ndone")
