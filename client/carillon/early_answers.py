"""Streams that hear an answer while a request is still being sent.

httpcore reads when it has sent the whole of a request. Whoever refuses a large one answers earlier, and may close the
connection without reading the rest; the answer is lost then, behind an error of the connection. So:

- after a head with `Expect: 100-continue`, the content waits for what the server says;
- while large content is sent, the server is listened to.

Where it has said something final, the next write is a `WriteError`: httpcore takes that for a connection that was
closed by a server which has answered, sends no more, and reads the answer.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpcore

EXPECT = {"Expect": "100-continue"}
_CONTINUE = b"100"
_EXPECT_LINE = b"\r\nExpect: 100-continue\r\n"
_LARGE_BYTES = 64 * 2**10  # what is smaller is sent at once
_READ_BYTES = 64 * 2**10


class Backend(httpcore.AsyncNetworkBackend):
    """Connects over TCP."""

    def __init__(self) -> None:
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return Stream(await self._backend.connect_tcp(host, port, timeout, local_address, socket_options))

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


class Stream(httpcore.AsyncNetworkStream):
    """The first write after a read is the head of a request, the others are its content."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._head_sent = False
        self._consent_asked = False
        self._heard = b""
        self._listening: asyncio.Task[None] | None = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._head_sent = self._consent_asked = False
        listening, self._listening = self._listening, None
        if listening is not None:
            await listening
        heard, self._heard = self._heard, b""
        return heard or await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not self._head_sent:
            await self._stream.write(buffer, timeout)
            self._head_sent, self._consent_asked = True, _EXPECT_LINE in buffer
            return
        if self._consent_asked:
            self._consent_asked = False
            await self._wait_for_consent()
        if len(buffer) >= _LARGE_BYTES and self._listening is None:
            self._listening = asyncio.create_task(self._listen(is_final))
        if self._listening is not None and self._listening.done():
            raise httpcore.WriteError("answered before the request was sent")
        await self._stream.write(buffer, timeout)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    async def aclose(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        await self._stream.aclose()

    async def _wait_for_consent(self) -> None:
        await self._listen(lambda statuses: _CONTINUE in statuses or is_final(statuses))
        if _CONTINUE not in statuses_of(self._heard):
            raise httpcore.WriteError("answered before the content was sent")

    async def _listen(self, enough: Callable[[Sequence[bytes]], bool]) -> None:
        """Read until enough was said, or until the connection ends."""
        while not enough(statuses_of(self._heard)):
            part = await self._stream.read(_READ_BYTES)
            if not part:
                return
            self._heard += part


def statuses_of(heard: bytes) -> list[bytes]:
    """The statuses that an answer has shown so far: any number of 1xx, when their heads are complete, and another."""
    found = []
    while len(heard) >= len("HTTP/1.1 200"):
        status = heard[9:12]
        if status.startswith(b"1"):
            _, end, heard = heard.partition(b"\r\n\r\n")
            if not end:
                break
        else:
            heard = b""
        found.append(status)
    return found


def is_final(statuses: Sequence[bytes]) -> bool:
    """Whether something more than 1xx was said."""
    return any(not status.startswith(b"1") for status in statuses)
