"""Blobs that are opened with the first use of a file.

Most processes never touch one, and the driver of S3 is larger than the rest of a scheduler: it takes a third of a
second to load, and 55 MB. It is loaded beside the event loop, which goes on.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from shared.blobs import Blobs
from shared.domain.audience.sources import File
from shared.domain.errors import Unavailable


class LateBlobs:
    """See `shared.blobs.Blobs`. `open_blobs` runs in a thread; what it refuses is told to whoever asked first, so
    settings are better checked before."""

    def __init__(self, bucket: str, open_blobs: Callable[[], Blobs]) -> None:
        self.bucket = bucket
        self._open_blobs = open_blobs
        self._blobs: Blobs | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def stat(self, path: str) -> File:
        return await (await self._open()).stat(path)

    async def read(self, blob: File, start: int, end: int) -> AsyncGenerator[bytes]:
        async with aclosing((await self._open()).read(blob, start, end)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def write(self, path: str, parts: AsyncIterator[bytes]) -> None:
        await (await self._open()).write(path, parts)

    async def upload_url(self, path: str, *, seconds: int) -> str:
        return await (await self._open()).upload_url(path, seconds=seconds)

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            if self._blobs is not None:
                await self._blobs.close()

    async def _open(self) -> Blobs:
        if self._blobs is not None:
            return self._blobs
        async with self._opening:
            if self._closed:
                raise Unavailable("the connections to the blobs are closed")
            if self._blobs is None:
                self._blobs = await asyncio.to_thread(self._open_blobs)
            return self._blobs
