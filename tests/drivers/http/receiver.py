"""Servers of other people, on loopback: one that takes notes and answers as told, and ones that misbehave on the wire.

127.0.0.1 plays the Internet (the clients here are allowed it), 127.0.0.2 a network that must not be reached.
"""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET, socket
from typing import Any

from aiohttp import web
from msgspec import Struct

from shared.drivers.http import Call
from shared.drivers.http.client import HttpOutgoing

INTERNET = "127.0.0.1"
PRIVATE = "127.0.0.2"
ALLOWED = (f"{INTERNET}/32",)

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Received(Struct):
    """A request as it came. `peer` tells connections apart."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    peer: Any

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]


class Receiver:
    """A web server that keeps what it gets and gives `answer`, a new one each time."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answer: Callable[[], web.StreamResponse] = web.Response
        self.url = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        self.received.append(
            Received(
                method=request.method,
                path=request.raw_path,
                headers=list(request.headers.items()),
                body=await request.read(),
                peer=request.transport.get_extra_info("peername"),
            )
        )
        return self.answer()


@asynccontextmanager
async def receiving(host: str = INTERNET, port: int = 0) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    runner = web.ServerRunner(web.Server(receiver.handle), shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    receiver.url = f"http://{host}:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


@asynccontextmanager
async def scripted(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that does exactly this with each connection; gives its `host:port`."""
    tasks = set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                await script(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, INTERNET, 0, ssl=tls)
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def reset(writer: asyncio.StreamWriter) -> None:
    """Break the connection off with a RST instead of a FIN."""
    raw: socket = writer.get_extra_info("socket")
    raw.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def calling(**options: Any) -> AsyncIterator[HttpOutgoing]:
    chosen = {"allowed_networks": ALLOWED, "timeout_seconds": 60.0, "connections": 8, **options}
    outgoing = HttpOutgoing.open(**chosen)
    try:
        yield outgoing
    finally:
        await outgoing.close()


def a_call(url: str, **changes: Any) -> Call:
    chosen = {"method": "POST", "headers": {}, "body": b'{"id":"42"}', "message_id": "m1", "timestamp": 1_800_000_000}
    return Call(url=url, **{**chosen, **changes})


def self_signed(folder: Path) -> ssl.SSLContext:
    """A certificate that nobody vouches for."""
    return serving_tls(make_certificate(folder))


def serving_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def make_certificate(folder: Path) -> Path:
    """A key and a certificate for 127.0.0.1 that vouches for itself, in one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nobody")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(INTERNET))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "own.pem").write_bytes(secret + certificate)
    return folder / "own.pem"
