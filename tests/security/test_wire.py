"""What anybody can send without being known: heads of any size, bad framing, pipelines, answers that nobody reads."""

import asyncio

import pytest

from tests.security.raw import Wire, exchange, head, statuses
from tests.security.target import Target
from tests.security.tenants import Town

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("judged")]

KIB = 2**10
MIB = 2**20
REQUESTS = 500

# Long texts for what is logged and masked, taken apart, compared and kept: each of them far below what a head may have.
LONG_PATHS = {
    "passwords in URLs": "/" + "a://:" * (60 * KIB // 5),
    "names of secrets": "/" + "secret" * (10 * KIB),
    "secrets with values": "/" + "password=x&" * (5 * KIB),
    "slashes": "/" * (60 * KIB),
    "percents": "/" + "%2525" * (12 * KIB),
    "dots": "/schedules/" + "../" * (20 * KIB),
    "a query of one key": "/schedules?cursor=" + "a" * (60 * KIB),
    "a query of many keys": "/schedules?" + "a=b&" * (15 * KIB),
    "a query of separators": "/schedules?" + "&;" * (30 * KIB),
    "a cursor of brackets": "/schedules?cursor=" + "W1tb" * (15 * KIB),
}


@pytest.mark.parametrize("name", LONG_PATHS)
async def test_a_long_path_costs_nobody_anything(target: Target, town: Town, name: str) -> None:
    async with target.attack(f"a path of {name}"):
        for headers in ({}, {"x-forwarded-email": "admin@example.com"}):
            [status] = await exchange(target.port, head("GET", LONG_PATHS[name], headers))
            assert 400 <= status < 500 or (status == 200 and "cursor" not in LONG_PATHS[name])


LONG_HEADERS = {
    "authorization": "Bearer " + "x" * (50 * KIB),
    "authorization of blanks": "Bearer" + " " * (50 * KIB) + "x",
    "x-forwarded-email": "a@" + "a." * (25 * KIB) + "com",
    "cookie": "a=b; " * (10 * KIB),
    "content-type": "application/json; " + "a=b;" * (12 * KIB),
    "accept": "text/html;q=0.1," * (3 * KIB),
    "idempotency-key": "k" * (50 * KIB),
}


@pytest.mark.parametrize("name", LONG_HEADERS)
async def test_a_long_header_costs_nobody_anything(target: Target, town: Town, name: str) -> None:
    headers = {"x-forwarded-email": "admin@example.com"} | {name.split(maxsplit=1)[0]: LONG_HEADERS[name]}
    async with target.attack(f"a long {name}"):
        for method, body in (("GET", b""), ("POST", b"{}")):
            [status] = await exchange(target.port, head(method, "/schedules", headers, body=body))
            assert status == 200 or 400 <= status < 500


TOO_MUCH = {
    "200 headers": b"a: b\r\n" * 200,
    "a header of 128 KiB": b"a: " + b"b" * (128 * KIB) + b"\r\n",
    "a name of 128 KiB": b"a" * (128 * KIB) + b": b\r\n",
}
FAR_TOO_MUCH = {
    "16 MiB of headers": b"a: b\r\n" * (16 * MIB // 6),
    "16 MiB of headers without a value": b"a:\r\n" * (16 * MIB // 4),
    "a header of 64 MiB": b"a: " + b"b" * (64 * MIB) + b"\r\n",
    "a name of 64 MiB": b"a" * (64 * MIB) + b": b\r\n",
}


@pytest.mark.parametrize("server", ["api", "health"])
@pytest.mark.parametrize("name", TOO_MUCH)
async def test_too_many_headers_are_refused(target: Target, town: Town, name: str, server: str) -> None:
    port = target.port if server == "api" else target.running.health_port
    async with target.attack(f"{name}, to the port of {server}"):
        request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + TOO_MUCH[name] + b"Connection: close\r\n\r\n"
        assert await exchange(port, request) == [431]


@pytest.mark.parametrize("server", ["api", "health"])
@pytest.mark.parametrize("name", FAR_TOO_MUCH)
async def test_far_too_many_headers_take_no_memory(target: Target, town: Town, name: str, server: str) -> None:
    port = target.port if server == "api" else target.running.health_port
    async with target.attack(f"{name}, to the port of {server}"):
        request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + FAR_TOO_MUCH[name] + b"Connection: close\r\n\r\n"
        # Who is still sending may find the connection cut before the answer is read.
        assert await exchange(port, request) in ([431], [])


async def test_a_path_of_a_megabyte_is_refused(target: Target, town: Town) -> None:
    async with target.attack("a path of 1 MiB"):
        [status] = await exchange(target.port, head("GET", "/" + "a" * MIB)) or [400]
        assert 400 <= status < 500


CHUNKED = b"POST /schedules HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
IN_CHUNKS = {
    "trailers": b"1\r\n{\r\n0\r\n" + b"a: b\r\n" * (8 * MIB // 6) + b"\r\n",
    "extensions": b"1;" + b"a" * (8 * MIB) + b"\r\n{\r\n0\r\n\r\n",
    "a byte each": b"1\r\n{\r\n" * (MIB // 2) + b"0\r\n\r\n",
    "leading zeros of a size": b"0" * (8 * MIB) + b"1\r\n{\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("name", IN_CHUNKS)
async def test_hostile_chunks_take_no_memory(target: Target, town: Town, name: str, *, known: bool) -> None:
    identity = b"x-forwarded-email: admin@example.com\r\n\r\n" if known else b"\r\n"
    async with target.attack(f"chunks with {name}"):
        found = await exchange(target.port, CHUNKED + identity + IN_CHUNKS[name])
        assert all(400 <= status < 500 for status in found)


FRAMING = {
    "two lengths": "Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}",
    "a length and chunks": "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": "Transfer-Encoding: chunked\r\nContent-Length: 40\r\n\r\n0\r\n\r\n",
    "a negative length": "Content-Length: -1\r\n\r\n",
    "a length with a sign": "Content-Length: +2\r\n\r\n{}",
    "a length in hex": "Content-Length: 0x2\r\n\r\n{}",
    "a length of 65 bits": "Content-Length: 36893488147419103232\r\n\r\n{}",
    "a list of lengths": "Content-Length: 2, 2\r\n\r\n{}",
    "an unknown coding": "Transfer-Encoding: gzip\r\n\r\n{}",
    "chunks not last": "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "chunks twice": "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "a blank before the colon": "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a chunk of 65 bits": "Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n",
    "a negative chunk": "Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
    "a chunk longer than it says": "Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
    "a NUL in a value": "a: \0\r\nContent-Length: 2\r\n\r\n{}",
    "a folded header": "a: b\r\n c: d\r\nContent-Length: 2\r\n\r\n{}",
    "a header without a name": ": b\r\nContent-Length: 2\r\n\r\n{}",
    "a header without a colon": "abc\r\nContent-Length: 2\r\n\r\n{}",
    "a carriage return alone": "a: b\rContent-Length: 2\r\n\r\n{}",
}
SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("name", FRAMING)
async def test_bad_framing_smuggles_nothing(target: Target, town: Town, name: str) -> None:
    """Whatever the body is taken for, there is one answer, and it is a refusal; what stands behind is not a request."""
    start = "POST /schedules HTTP/1.1\r\nHost: localhost\r\nx-forwarded-email: admin@example.com\r\n"
    async with target.attack(f"framing: {name}"):
        found = await exchange(target.port, (start + FRAMING[name] + SMUGGLED).encode("latin-1"), seconds=5)
        assert all(400 <= status < 500 for status in found)
        assert 404 not in found


STARTS = {
    "nothing but line ends": b"\r\n" * 100_000,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /docs\r\n\r\n",
    "HTTP/9.9": b"GET /docs HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303") + bytes(500),
    "zeros": bytes(MIB),
    "an unknown method": b"BREW /docs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "a method of 1 MiB": b"A" * MIB + b" / HTTP/1.1\r\n\r\n",
    "CONNECT": b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "a path without a slash": b"GET docs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "an upgrade": b"GET /docs HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
}


@pytest.mark.parametrize("server", ["api", "health"])
@pytest.mark.parametrize("name", STARTS)
async def test_no_start_of_a_connection_is_a_fault(target: Target, town: Town, name: str, server: str) -> None:
    port = target.port if server == "api" else target.running.health_port
    async with target.attack(f"a connection that begins with {name}"):
        found = await exchange(port, STARTS[name], seconds=2)
        assert all(status < 500 for status in found)


async def test_pipelined_requests_do_not_keep_others_waiting(target: Target, town: Town) -> None:
    burst = head("GET", "/schedules", last=False) * REQUESTS
    async with target.attack(f"8 pipelines of {REQUESTS}"):
        wires = [await Wire.open(target.port) for _ in range(8)]
        await asyncio.gather(*(wire.send(burst) for wire in wires))
        received = await asyncio.gather(*(wire.until(REQUESTS) for wire in wires))
        for wire in wires:
            wire.close()
    assert {status for each in received for status in statuses(each)} <= {401, 429}


async def test_answers_that_nobody_reads_take_no_memory(target: Target, town: Town) -> None:
    burst = head("GET", "/openapi.json", last=False) * 100
    async with target.attack("200 connections that read nothing"):
        wires = [await Wire.open(target.port) for _ in range(200)]
        for wire in wires:
            wire.reader._transport.pause_reading()  # type: ignore[attr-defined]
            wire.writer.write(burst)
        # As long as it takes others to be answered, behind all of these.
        for _ in range(20):
            assert (await target.call("GET", "/docs")).status == 200
        for wire in wires:
            wire.close()


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("framed", ["by its length", "in chunks"])
async def test_a_large_body_takes_no_memory(target: Target, town: Town, framed: str, *, known: bool) -> None:
    identity = b"x-forwarded-email: admin@example.com\r\n" if known else b""
    start = b"POST /schedules HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + identity
    piece = b" " * MIB
    if framed == "by its length":
        request = start + b"Content-Length: %d\r\n\r\n" % (64 * MIB) + piece * 64
    else:
        request = start + b"Transfer-Encoding: chunked\r\n\r\n" + (b"100000\r\n" + piece + b"\r\n") * 64 + b"0\r\n\r\n"
    async with target.attack(f"a body of 64 MiB {framed}"):
        assert await exchange(target.port, request) in ([413 if known else 401], [])
