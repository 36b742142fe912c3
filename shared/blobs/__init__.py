"""Blobs are files of others and of our own: audiences that a job's `csvPath` names, and who was held out of it. They
lie in S3, or in a folder where there is none.

Guarantees:

- **A path is data.** It reads "<bucket>/<key>" and is judged before anything is asked (`paths.py`): only the buckets
  that the deployment allows can be reached, and nothing leads out of one.
- **A read is of one version.** It gives exactly the bytes of the object that `stat` saw, or `Invalid`: one that was
  replaced, changed or deleted since is never read on from. Memory is bounded whatever the range.
- **A write shows whole or not at all**, whatever is killed, and replaces what was there. Repeating it is harmless.
- **An upload in parts** is remembered by whoever takes its parts, by a path and a token: each part may come to another
  process. Nobody sees an object before the parts are joined. A part that comes again takes the place of the one before.
  All but the last have at least 5 MiB, as S3 wants it.
- A server that is down or slow is `Unavailable`, and one that denies us is `Denied`, which is a kind of it; what works
  again afterwards is simply used. A read whose connection breaks goes on where it stopped, and is given up once that
  brings too little, several times over.

Every implementation passes `tests/blobs`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Protocol

from shared.domain.audience.sources import File

CHUNK_BYTES = 2**20


class Blobs(Protocol):
    """Objects of some buckets. Whatever takes a path raises `Invalid` (`field` is `csvPath`) for one that breaks a
    rule."""

    bucket: str
    """The bucket for our own files: the upload folder and the control groups lie in it."""

    async def stat(self, path: str) -> File:
        """The object as it is now.

        Raises:
            Invalid: the path breaks a rule or names a bucket that is not allowed.
            NotFound: there is no such object that we may read (`field` is `csvPath`); as `Hidden`, where access is
                denied and nobody tells whether it is there.
            Unavailable: nobody knows; this takes a few seconds at most.
        """

    def read(self, blob: File, start: int, end: int) -> AsyncGenerator[bytes]:
        """Bytes `start` (from 0) to `end` (not included; the object's end at most), in chunks of at most `CHUNK_BYTES`.

        For an empty range nothing is read and nothing checked. A caller that may leave the iteration early closes it
        (`contextlib.aclosing`), so that its connection ends there.

        Raises:
            Invalid: it is another object by now, or none (`field` is `csvPath`).
            Unavailable: the rest cannot be had now; as `Denied`, where we may not read it any more.
        """

    async def write(self, path: str, parts: AsyncIterator[bytes]) -> None:
        """Make this the object at the path. Memory is bounded, and an error of `parts` passes and leaves all as it was.

        Raises:
            Invalid: nothing can be written there, whenever it is tried: the path breaks a rule, access is denied, or
                there is no such bucket (`field` is `csvPath`).
            Unavailable: it cannot be written now, or nobody knows whether it was.
        """

    async def begin_parts(self, path: str) -> str:
        """Begin an upload in parts to this path: the token by which it goes on. Raises as `write`."""

    async def write_part(self, path: str, token: str, number: int, content: bytes) -> str:
        """Keep this as the part with this number (from 1), and give its version.

        Raises:
            NotFound: there is no such upload, any more.
            Invalid, Unavailable: as `write`.
        """

    async def join_parts(self, path: str, token: str, parts: Sequence[tuple[int, str]]) -> None:
        """Make these parts, in the order of their numbers and each in this version, the object at the path. The upload
        is over then, and its token means nothing any more. The path is of this upload alone: who joins its parts a
        second time does not replace the object.

        Raises:
            NotFound: there is no such upload, any more: what is at the path tells whether its parts have been joined.
                S3 may also answer as it did when they were.
            Conflict: a part is not there, has another version, or is too small.
            Invalid, Unavailable: as `write`.
        """

    async def drop_parts(self, path: str, token: str) -> None:
        """Forget an upload and its parts; one that is over stays as it is. Raises `Invalid`, `Unavailable`."""

    async def upload_url(self, path: str, *, seconds: int) -> str:
        """A URL at which anybody may PUT the object for so long, without credentials. It begins with `/` if it is one
        of our own API. Raises `Unavailable`."""

    async def make_bucket(self) -> None:
        """Make our own bucket where there is none.

        Raises:
            Denied: there is none, and we may not make it; or nobody may tell us.
            Unavailable: nobody knows.
        """

    async def verify(self) -> None:
        """Find out whether our own bucket can be read and written, and leave nothing behind: no object is ever seen.

        Raises:
            NotFound: there is no such bucket.
            Denied: we may not read or write there.
            Unavailable: nobody knows.
        """

    async def close(self) -> None:
        """End the connections."""


class Uploads(Protocol):
    """Takes the PUTs at the URLs that `upload_url` gave, where these are of our own API."""

    async def accept_upload(
        self, path: str, *, expires: str, signature: str, parts: AsyncIterator[bytes], max_bytes: int
    ) -> None:
        """Store what comes; nothing of `parts` is taken before the URL is found to be one of ours.

        Raises:
            Forbidden: the URL is not ours, or has expired.
            Invalid: there is more than `max_bytes` (`field` is `body`), and nothing was kept.
            Unavailable: it cannot be stored now.
        """
