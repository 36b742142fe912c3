"""What the client does on the wire, and what it does not: raw servers, plain and behind TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web

from carillon import CarillonError, Invalid, RabbitCallback, Schedule, Unavailable, connections
from tests.client.both import connect
from tests.client.test_attempts import Scripted, fired, scripted
from tests.drivers.http.receiver import make_certificate, serving_tls

pytestmark = pytest.mark.usefixtures("each_client")

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

REFUSAL = b'{"reason":"larger than this server takes"}'
REFUSED = b"HTTP/1.1 413 Too Large\r\nContent-Length: %d\r\n\r\n%b" % (len(REFUSAL), REFUSAL)
FIRED = b'{"id":"i","due":"2030-01-01T00:00:00Z"}'
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\n\r\n%b" % (len(FIRED), FIRED)


@pytest.fixture(params=["http", "https"])
def scheme(request: pytest.FixtureRequest) -> str:
    scheme: str = request.param
    return scheme


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One for 127.0.0.1 that this machine trusts, for so long."""
    certificate = make_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=certificate)
    monkeypatch.setattr(connections, "_trust", lambda: trusting)
    return certificate


@asynccontextmanager
async def served(serve: Serve, scheme: str = "http", certificate: Path | None = None) -> AsyncIterator[str]:
    tls = serving_tls(certificate) if certificate and scheme == "https" else None
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


async def read_head(reader: asyncio.StreamReader) -> bytes:
    return (await reader.readuntil(b"\r\n\r\n")).lower()


async def test_who_refuses_large_content_before_all_of_it_came_is_heard(scheme: str, certificate: Path) -> None:
    """It closes the connection then, with most of the content unread."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        await reader.readexactly(100_000)
        writer.write(REFUSED)
        await writer.drain()

    large = Schedule(key="k", every_seconds=60, callback=RabbitCallback(queue="q", payload="x" * 10**6))
    async with served(refuse, scheme, certificate) as url, connect(url, attempts=1) as client:
        with pytest.raises(Invalid, match="larger than this server takes"):
            _ = [result async for result in client.schedules.bulk([large] * 8)]


async def test_a_file_waits_for_consent_and_hears_a_refusal(scheme: str, certificate: Path, tmp_path: Path) -> None:
    file = tmp_path / "users.csv"
    file.write_bytes(bytes(10**6))
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await read_head(reader)).startswith(b"get"):
            host = head.partition(b"\r\nhost: ")[2].partition(b"\r\n")[0]
            place = b'{"url":"%b://%b/bucket/a.csv?signed","csvPath":"bucket/a.csv"}' % (scheme.encode(), host)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(place), place))
        assert b"\r\nexpect: 100-continue\r\n" in head
        if got:
            writer.write(REFUSED)
        else:
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 ")
            writer.write(b"Continue\r\n\r\n")
            got.append(await reader.readexactly(10**6))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with served(serve, scheme, certificate) as url, connect(url, attempts=1) as client:
        assert await client.uploads.put(file) == "bucket/a.csv"
        assert got == [bytes(10**6)]
        with pytest.raises(Invalid, match="larger than this server takes"):
            await client.uploads.put(file)


async def test_a_server_that_nobody_vouches_for_is_told_nothing(tmp_path: Path) -> None:
    heads: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_head(reader))

    nobodys = make_certificate(tmp_path)
    async with served(take, "https", nobodys) as url, connect(url, token="t", attempts=1) as client:
        with pytest.raises(Unavailable, match="self-signed certificate"):
            await client.schedules.fire("k")
    assert heads == []


async def test_calls_one_after_another_share_a_connection() -> None:
    heads: list[list[bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append([])
        while not reader.at_eof():
            heads[-1].append(await read_head(reader))
            writer.write(ACCEPTED)

    async with served(serve) as url, connect(url) as client:
        for _ in range(3):
            await client.schedules.fire("k")
    assert [len(each) for each in heads] == [3]
    assert all(b"\r\ncontent-length: 0\r\n" in head for head in heads[0])


async def test_a_post_is_not_repeated_within_an_attempt() -> None:
    calls = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        for _ in range(2):
            await read_head(reader)
            calls += 1
            if calls == 1:
                writer.write(ACCEPTED)

    async with served(serve) as url, connect(url, attempts=1) as client:
        await client.schedules.fire("k")
        with pytest.raises(Unavailable):
            await client.schedules.fire("k")
    assert calls == 2


async def test_neither_cookies_nor_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    first = fired()
    first.set_cookie("session", "1")
    server = Scripted(first, fired())
    async with scripted(server) as client:
        await client.schedules.fire("k")
        await client.schedules.fire("k")
    assert [request.cookies for request in server.asked] == [{}, {}]


async def test_a_compressed_answer_is_read_and_one_that_only_seems_so_is_not() -> None:
    compressed, seeming = fired(), web.Response(body=FIRED, status=202, headers={"Content-Encoding": "gzip"})
    compressed.enable_compression(web.ContentCoding.gzip)
    async with scripted(Scripted(compressed, seeming), attempts=1) as client:
        assert (await client.schedules.fire("k")).id == "i"
        with pytest.raises(Unavailable):
            await client.schedules.fire("k")


async def test_what_cannot_stand_in_a_header_is_refused_at_once_and_not_shown() -> None:
    for token in ("secret\n", " secret ", "sec\0ret"):
        with pytest.raises(ValueError, match="Authorization: ") as caught:
            connect("http://host", token=token)
        assert "sec" not in str(caught.value)
    async with connect("http://127.0.0.1:1", attempts=1) as client:
        with pytest.raises(ValueError, match="Idempotency-Key: "):
            await client.schedules.fire("k", idempotency_key="a\r\nb: c")


async def test_a_person_may_have_any_letters() -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_head(reader))
        writer.write(ACCEPTED)

    async with served(serve) as url, connect(url, user="jörg@example.com") as client:
        await client.schedules.fire("k")
    assert "\r\nx-forwarded-email: jörg@example.com\r\n".encode() in heads[0]


async def test_a_user_and_a_password_in_the_url_are_sent_as_such() -> None:
    server = Scripted(fired(), web.Response(status=400))
    async with scripted(server) as client:
        url = client._transport._base.replace("://", "://me:p%40ss@")
        with pytest.raises(ValueError, match="either a token or"):
            connect(url, token="t")
        async with connect(url, user="a@example.com") as other:
            await other.schedules.fire("k")
            with pytest.raises(CarillonError):
                await other.schedules.fire("k")
    assert [request.headers["Authorization"] for request in server.asked] == ["Basic bWU6cEBzcw=="] * 2


async def test_over_http_no_certificates_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(connections, "_trust", lambda: read.append("certificates"))

    async with scripted(Scripted(fired())) as client:
        await client.schedules.fire("k")
    assert read == []
