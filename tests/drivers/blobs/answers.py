"""A server that speaks for S3 as a test tells it to: refusals and broken connections that moto never gives."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct


class Asked(Struct, frozen=True):
    """A request: its method, its target, and its headers by lower-case name."""

    method: str
    target: str
    headers: dict[str, str]


Answering = Callable[[Asked], bytes]
"""The bytes of an answer, which may end too early."""


def answer(status: int, body: bytes = b"", *, length: int | None = None, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body) if length is None else length}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


def refusal(asked: Asked, status: int, code: str) -> bytes:
    """As S3 refuses: of a HEAD, nobody learns why."""
    body = f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode()
    return answer(status, b"" if asked.method == "HEAD" else body, Content_Type="application/xml")


@asynccontextmanager
async def answering(how: Answering, *, port: int = 0, closing: bool = True) -> AsyncIterator[str]:
    """The URL of such a server. It closes each connection behind its answer, or else falls silent."""
    ended = asyncio.Event()
    conversations: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(how(await _asked(reader, writer)))
            await writer.drain()
            if not closing:
                await ended.wait()
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversations.add(asyncio.create_task(converse(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ended.set()
        await asyncio.gather(*conversations, return_exceptions=True)  # whoever asked may be gone


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    if "expect" in headers:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, target, headers)
