"""Servers that misbehave: a call ends in time, its error tells why, and nothing that is secret."""

import asyncio
import socket
import ssl
import threading
import traceback
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest

from shared.drivers.http import Posting, Unreachable
from shared.drivers.http.client import HttpOutgoing
from tests.drivers.http.receiver import (
    INTERNET,
    Receiver,
    Script,
    a_call,
    calling,
    receiving,
    reset,
    scripted,
    self_signed,
)

PATIENCE = 1.0
LIMIT = 30.0  # whatever the machine does besides
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
async def hasty() -> AsyncIterator[HttpOutgoing]:
    async with calling(timeout_seconds=PATIENCE) as opened:
        yield opened


async def _failure(outgoing: HttpOutgoing, address: str, scheme: str = "http") -> str:
    call = a_call(f"{scheme}://{address}/hush?token=hush", headers={"Authorization": "hush"})
    began = monotonic()
    with pytest.raises(Unreachable) as caught:
        await outgoing.call(call)
    assert monotonic() - began < LIMIT
    # The frames of this test show the source above; what is left must not show what was called.
    assert "hush" not in "".join(traceback.format_exception_only(caught.value))
    assert caught.value.__suppress_context__
    return str(caught.value)


def answers(*parts: bytes, then: Script | None = None) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
        if then:
            await then(reader, writer)

    return script


async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(65_536):
        pass


async def promises(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000)
        await writer.drain()


async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    reset(writer)


async def test_a_server_that_never_answers(hasty: HttpOutgoing) -> None:
    async with scripted(hangs) as address:
        assert await _failure(hasty, address) == f"{address} gave no answer within 1 s"


async def test_a_server_that_sends_half_a_header_and_hangs(hasty: HttpOutgoing) -> None:
    async with scripted(answers(b"HTTP/1.1 200 OK\r\nContent-", then=hangs)) as address:
        assert "gave no answer" in await _failure(hasty, address)


async def test_a_server_that_promises_an_answer_for_ever(outgoing: HttpOutgoing) -> None:
    async with scripted(promises) as address:
        assert await _failure(outgoing, address) == f"{address} answers, but not in HTTP"
        with pytest.raises(Unreachable, match="answers, but not in HTTP"):
            await outgoing.post(Posting(f"http://{address}/", {}, b"{}", LIMIT, lambda: True))


async def test_an_answer_may_be_announced() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3
    async with calling() as outgoing, scripted(answers(b"HTTP/1.1 102 Processing\r\n\r\n", hints + OK)) as address:
        assert (await outgoing.call(a_call(f"http://{address}/"))).accepted


async def test_a_connection_in_the_pool_is_ended_by_more_answers(outgoing: HttpOutgoing) -> None:
    answered, ended = asyncio.Event(), asyncio.Event()

    async def goes_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answered.wait()
        with suppress(ConnectionError):
            await promises(reader, writer)
        ended.set()

    async with scripted(answers(OK, then=goes_on)) as address, asyncio.timeout(LIMIT):
        assert (await outgoing.post(Posting(f"http://{address}/", {}, b"{}", LIMIT, lambda: True))).status == 200
        answered.set()
        await ended.wait()


@pytest.mark.parametrize("script", [resets, answers(then=resets), answers(), answers(b"HTTP/1.1 200 OK\r\n")])
async def test_a_server_that_breaks_off(outgoing: HttpOutgoing, script: Script) -> None:
    async with scripted(script) as address:
        assert await _failure(outgoing, address) == f"{address} broke off without an answer"


async def test_a_server_that_does_not_speak_http(outgoing: HttpOutgoing) -> None:
    async with scripted(answers(b"220 mail.example ESMTP\r\n")) as address:
        assert await _failure(outgoing, address) == f"{address} answers, but not in HTTP"


async def test_headers_without_an_end(outgoing: HttpOutgoing) -> None:
    async with scripted(answers(b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 10**6, then=hangs)) as address:
        assert await _failure(outgoing, address) == f"{address} answers, but not in HTTP"


async def test_a_closed_port(outgoing: HttpOutgoing) -> None:
    with socket.socket() as unused:
        unused.bind((INTERNET, 0))
        address = "{}:{}".format(*unused.getsockname())
        assert "cannot be connected to: Connect" in await _failure(outgoing, address)


async def test_the_address_behind_a_name_is_not_told() -> None:
    with socket.socket() as unused:
        unused.bind((INTERNET, 0))
        port = unused.getsockname()[1]
        async with calling(lookup=lambda _: [INTERNET]) as outgoing:
            failure = await _failure(outgoing, f"hooks.example:{port}")
    assert failure == f"hooks.example:{port} cannot be connected to: Connection refused"


async def test_a_server_that_accepts_no_connections() -> None:
    with socket.socket() as full:
        full.bind((INTERNET, 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        async with calling(timeout_seconds=PATIENCE) as outgoing:
            await _failure(outgoing, "{}:{}".format(*full.getsockname()))
        for filler in fillers:
            filler.close()


async def test_a_name_that_nobody_knows() -> None:
    def unknown(host: str) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with calling(lookup=unknown) as outgoing:
        assert await _failure(outgoing, "gone.example") == "gone.example cannot be found: no DNS server knows the name"


@pytest.mark.slow
async def test_a_name_server_that_is_away_holds_up_its_own_names_only(receiver: Receiver) -> None:
    release = threading.Event()

    def lookup(host: str) -> list[str]:
        if host != "here.example":
            release.wait(30)
        return [INTERNET]

    port = receiver.url.rsplit(":", 1)[1]
    async with calling(lookup=lookup, timeout_seconds=3.0, connections=30) as outgoing:
        try:
            away = [asyncio.create_task(_failure(outgoing, f"away{number}.example")) for number in range(20)]
            await asyncio.sleep(0)
            assert (await outgoing.call(a_call(f"http://here.example:{port}"))).accepted
            assert all("gave no answer" in text for text in await asyncio.gather(*away))
        finally:
            release.set()


async def test_tls_with_a_server_that_has_none(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    address = receiver.url.removeprefix("http://")
    assert await _failure(outgoing, address, "https") == f"{address} cannot be trusted: the TLS handshake failed"


async def test_a_certificate_that_nobody_vouches_for(outgoing: HttpOutgoing, own_certificate: ssl.SSLContext) -> None:
    async with scripted(answers(b"HTTP/1.1 200 OK\r\n\r\n"), tls=own_certificate) as address:
        assert "cannot be trusted: self-signed certificate" in await _failure(outgoing, address, "https")


async def test_a_tls_handshake_that_hangs(hasty: HttpOutgoing) -> None:
    async with scripted(hangs) as address:
        await _failure(hasty, address, "https")


async def test_the_status_is_the_answer_though_the_body_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.drivers.http.client.EXCERPT_SECONDS", 60.0)
    head = b"HTTP/1.1 500 No\r\nContent-Length: 100\r\nRetry-After: 3\r\n\r\nso far"
    async with calling(timeout_seconds=3) as patient, scripted(answers(head, then=hangs)) as address:
        began = monotonic()
        answer = await patient.call(a_call(f"http://{address}/"))
        assert monotonic() - began < LIMIT
    assert (answer.status, answer.excerpt, answer.retry_after_seconds) == (500, "so far", 3)


async def test_a_hanging_body_is_waited_for_no_longer_than_an_excerpt_is_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.drivers.http.client.EXCERPT_SECONDS", 0.1)
    async with calling(timeout_seconds=60) as outgoing, scripted(answers(b"HTTP/1.1 200 OK\r\n\r\n", then=hangs)) as at:
        async with asyncio.timeout(LIMIT):
            assert (await outgoing.call(a_call(f"http://{at}/"))).accepted


@pytest.mark.parametrize("head", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
async def test_the_status_is_the_answer_though_the_body_breaks_off(outgoing: HttpOutgoing, head: bytes) -> None:
    async with scripted(answers(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n", then=resets)) as address:
        assert (await outgoing.call(a_call(f"http://{address}/"))).accepted


@pytest.mark.parametrize("chunked", [True, False])
async def test_of_an_endless_body_little_is_read(outgoing: HttpOutgoing, chunked: bool) -> None:
    sent = 0
    ended = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            while True:
                writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n" if chunked else b"x" * 4096)
                await writer.drain()
                sent += 4096
        finally:
            ended.set()

    head = b"HTTP/1.1 500 No\r\n" + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n")
    async with scripted(answers(head, then=endless)) as address, asyncio.timeout(LIMIT):
        answer = await outgoing.call(a_call(f"http://{address}/"))
        assert answer.excerpt == "x" * 256
        await ended.wait()
    assert sent < 16 * 2**20  # what fits into the buffers of two sockets


async def test_a_server_that_answers_before_it_has_read_the_call(outgoing: HttpOutgoing) -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.Event().wait()

    async with scripted(early) as address, asyncio.timeout(LIMIT):
        assert (await outgoing.call(a_call(f"http://{address}/", body=b"x" * 900_000))).status == 413


async def test_a_cancelled_call_ends_its_connection(outgoing: HttpOutgoing) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def notes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await hangs(reader, writer)
        left.set()

    async with scripted(notes) as address, asyncio.timeout(LIMIT):
        call = asyncio.create_task(outgoing.call(a_call(f"http://{address}/")))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await left.wait()


async def test_closing_ends_the_calls_under_way() -> None:
    asked = asyncio.Event()

    async def notes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await hangs(reader, writer)

    async with calling(timeout_seconds=30) as outgoing, scripted(notes) as address, asyncio.timeout(LIMIT):
        call = asyncio.create_task(outgoing.call(a_call(f"http://{address}/")))
        await asked.wait()
        await outgoing.close()
        with pytest.raises(Unreachable):
            await call


async def test_a_server_that_comes_back_is_simply_called(outgoing: HttpOutgoing) -> None:
    async with receiving() as first:
        assert (await outgoing.call(a_call(first.url))).accepted
    with pytest.raises(Unreachable):
        await outgoing.call(a_call(first.url))
    async with receiving(port=int(first.url.rsplit(":", 1)[1])) as second:
        assert (await outgoing.call(a_call(first.url))).accepted
        assert len(second.received) == 1


@pytest.fixture
def own_certificate(tmp_path: Path) -> ssl.SSLContext:
    return self_signed(tmp_path)
