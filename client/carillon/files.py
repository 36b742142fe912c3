"""Files to be uploaded, read in small pieces: however large they are, little of them is in memory."""

import copy
import hashlib
import os
import stat
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Self, TypeVar

from carillon.connections import Runtime
from carillon.errors import Invalid

T = TypeVar("T")


async def each(items: Iterable[T] | AsyncIterable[T], runtime: Runtime) -> AsyncGenerator[T]:
    """The items, in their order. Raises `TypeError` for asynchronous ones where there is no event loop."""
    if isinstance(items, AsyncIterable):
        if runtime.blocking:
            raise TypeError("an asynchronous iterable needs AsyncCarillon")
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


PART_BYTES = 256 * 2**10
Progress = Callable[[int, int], None]
"""Hears of how many bytes are on their way, of how many."""
Source = str | os.PathLike[str] | Iterable[bytes] | AsyncIterable[bytes]


class File:
    """A file as it was found: `size` in bytes. It can be read several times, and must stay as it is.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file: the length of a pipe is not known beforehand.
    """

    def __init__(self, path: Path) -> None:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} is no regular file")
        path.open("rb").close()
        self.size = found.st_size
        self._start = 0
        self._whole = found.st_size
        self._path = path
        self._version = _version(found)
        self._unread: OSError | None = None
        self._on_progress: Progress | None = None

    def report(self, on_progress: Progress | None) -> None:
        """Tell of all that is read from now on, also of slices."""
        self._on_progress = on_progress

    def slices(self, size: int) -> Iterator[Self]:
        """The same file in slices of this size; the last may be shorter, and is empty of an empty file."""
        for start in range(0, max(self.size, 1), size):
            part = copy.copy(self)
            vars(part).update(_start=start, size=min(size, self.size - start))
            yield part

    async def digest(self, runtime: Runtime) -> str:
        """The SHA-256 of its content. Raises as `parts`."""
        found, silent = hashlib.sha256(), copy.copy(self)
        silent.report(None)
        async with aclosing(silent.parts(runtime)) as parts:
            async for part in parts:
                found.update(part)
        return found.hexdigest()

    async def parts(self, runtime: Runtime) -> AsyncGenerator[bytes]:
        """All of it. Raises `Invalid` where it ends too early, and `OSError` where it cannot be read."""
        left = self.size
        try:
            with self._path.open("rb") as file:
                file.seek(self._start)
                while left:
                    part = await runtime.read(file, min(PART_BYTES, left))
                    if not part:
                        raise self._changed()
                    left -= len(part)
                    yield part
                    if self._on_progress is not None:
                        self._on_progress(self._start + self.size - left, self._whole)
        except OSError as error:
            self._unread = error
            raise

    def check(self) -> None:
        """Raise again what kept `parts` from reading, which their sender may take for an error of the connection.

        Raises:
            Invalid: the file changed while it was read.
            OSError: it could not be read.
        """
        if not self._path.exists() or _version(self._path.stat()) != self._version:
            raise self._changed()
        if self._unread is not None:
            raise self._unread

    def _changed(self) -> Invalid:
        return Invalid(f"{self._path} has changed while it was uploaded", field="source")


@asynccontextmanager
async def file_of(source: Source, runtime: Runtime) -> AsyncIterator[File]:
    """The file that is to be uploaded; a stream becomes one, for so long. Raises as `File`."""
    if isinstance(source, str | os.PathLike):
        yield File(Path(source))
        return
    with tempfile.TemporaryDirectory(prefix="carillon-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "upload.csv")
        await _write(source, path, runtime)
        yield File(path)


async def _write(stream: Iterable[bytes] | AsyncIterable[bytes], path: Path, runtime: Runtime) -> None:
    waiting = bytearray()
    with path.open("wb") as file:
        async for part in each(stream, runtime):
            waiting += part
            if len(waiting) >= PART_BYTES:
                await runtime.write(file, waiting)
                waiting = bytearray()
        await runtime.write(file, waiting)


def _version(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_size, found.st_mtime_ns
