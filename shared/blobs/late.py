"""Opens blobs at the first use of a file: the driver of S3 takes a third of a second to load, and 40 MB."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing

from shared.blobs import Blobs
from shared.domain.audience.sources import File
from shared.runtime.late import Late


class LateBlobs:
    """See `shared.blobs.Blobs`."""

    def __init__(self, bucket: str, load: Callable[[], Callable[[], Blobs]]) -> None:
        self.bucket = bucket
        self._late = Late("the place of the files", load)

    async def load(self) -> None:
        """Open them now, for a caller that has no time later."""
        await self._late.get()

    async def stat(self, path: str) -> File:
        return await (await self._late.get()).stat(path)

    async def read(self, blob: File, start: int, end: int) -> AsyncGenerator[bytes]:
        async with aclosing((await self._late.get()).read(blob, start, end)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def write(self, path: str, parts: AsyncIterator[bytes]) -> None:
        await (await self._late.get()).write(path, parts)

    async def begin_parts(self, path: str) -> str:
        return await (await self._late.get()).begin_parts(path)

    async def write_part(self, path: str, token: str, number: int, content: bytes) -> str:
        return await (await self._late.get()).write_part(path, token, number, content)

    async def join_parts(self, path: str, token: str, parts: Sequence[tuple[int, str]]) -> None:
        await (await self._late.get()).join_parts(path, token, parts)

    async def drop_parts(self, path: str, token: str) -> None:
        await (await self._late.get()).drop_parts(path, token)

    async def upload_url(self, path: str, *, seconds: int) -> str:
        return await (await self._late.get()).upload_url(path, seconds=seconds)

    async def make_bucket(self) -> None:
        await (await self._late.get()).make_bucket()

    async def verify(self) -> None:
        await (await self._late.get()).verify()

    async def close(self) -> None:
        await self._late.close()
