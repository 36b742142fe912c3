"""Blobs are files in S3 or in a folder: audiences that a job's `csvPath` names, and control groups of jobs.

Guarantees:

- **A path is data.** It is "<bucket>/<key>" and is checked before any request (`paths.py`): only allowed buckets can be
  reached, and no path leads out of one.
- **A read is of one version.** It gives exactly the bytes of the object that `stat` saw, or `Invalid`: reading never
  goes on from an object that was replaced, changed or deleted. Memory is bounded for any range.
- **A write shows whole or not at all**, whatever is killed, and replaces the earlier object. It may be repeated.
- **An upload in parts** is known by a path and a token, which the caller keeps: each part may come to another process.
  The object is invisible before the parts are joined. A part replaces an earlier one of its number. All but the last
  have at least 5 MiB, because S3 demands it.
- A server that is down or slow is `Unavailable`; one that denies access is `Denied`, a kind of it. It is used again as
  soon as it works. A read whose connection breaks goes on where it stopped; after several breaks with too few bytes in
  between it is given up.

Every implementation passes `tests/drivers/blobs`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Protocol

from shared.audience.rules.audiences import File
from shared.runtime.cached import Late

CHUNK_BYTES = 2**20


class Blobs(Protocol):
    """Objects of some buckets. A method with a path raises `Invalid` (field `csvPath`) if the path breaks a rule."""

    bucket: str
    """The bucket for Carillon's own files: the upload folder and the control groups."""

    async def stat(self, path: str) -> File:
        """Look at the object as it is now, for a few seconds at most. Raises `NotFound` if there is no readable object;
        as `Hidden`, if access is denied and the server does not say whether it exists."""

    def read(self, blob: File, start: int, end: int) -> AsyncGenerator[bytes]:
        """The bytes from `start` (from 0) to before `end` (or the object's end), in chunks of at most `CHUNK_BYTES`.

        For an empty range nothing is read or checked. A caller that may leave the iteration early closes it
        (`contextlib.aclosing`), so that its connection ends there. Raises `Invalid` if the object was replaced or is
        gone."""

    async def write(self, path: str, parts: AsyncIterator[bytes]) -> None:
        """Write the object at the path. Memory is bounded; after an error of `parts`, the earlier object stays. Raises
        `Invalid` if writing will always fail."""

    async def begin_parts(self, path: str) -> str:
        """Begin an upload in parts to this path; return its token. Raises as `write`."""

    async def write_part(self, path: str, token: str, number: int, content: bytes) -> str:
        """Keep the part with this number (from 1); return its version. Raises `NotFound` if the upload is over or
        unknown, and what `write` raises."""

    async def join_parts(self, path: str, token: str, parts: Sequence[tuple[int, str]]) -> None:
        """Make the object at the path from these parts, in the order of their numbers, each in this version.

        The upload is then over and its token void. The path belongs to this upload alone: a second call does not
        replace the object. Raises `NotFound` if the upload is over or unknown; for a joined upload, S3 may also repeat
        its first answer. Raises `Conflict` if a part is missing, has another version, or is too small."""

    async def drop_parts(self, path: str, token: str) -> None:
        """Forget an upload and its parts; an upload that is over stays as it is. Raises `Invalid`."""

    async def upload_url(self, path: str, *, seconds: int) -> str:
        """A URL at which the object may be PUT for `seconds`, without credentials. It begins with `/` if it belongs to
        Carillon's own API."""

    async def make_bucket(self) -> None:
        """Make Carillon's own bucket if it is missing. Raises `Denied` if it is missing and may not be made, or may not
        be looked up."""

    async def verify(self) -> None:
        """Check that Carillon's own bucket can be read and written. No object is ever visible, and nothing stays
        behind. Raises `NotFound` if there is no such bucket, `Denied` if reading or writing is not allowed."""

    async def close(self) -> None: ...


class Uploads(Protocol):
    """Takes the PUTs at URLs of `upload_url` that belong to Carillon's own API."""

    async def accept_upload(
        self, path: str, *, expires: str, signature: str, parts: AsyncIterator[bytes], max_bytes: int
    ) -> None:
        """Store an upload; `parts` is not read before the URL is verified. Raises `Forbidden` if Carillon did not sign
        the URL, or it has expired; `Invalid` beyond `max_bytes` (field `body`), when nothing was kept."""


class LateBlobs:
    """See `shared.drivers.blobs.Blobs`."""

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
