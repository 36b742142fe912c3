"""Blobs in a folder, for the embedded mode: the file of "<bucket>/<key>" is at that path below the folder.

    <folder>/carillon/jobs/job-1.csv    an object of the bucket `carillon`
    <folder>/.partial/…                 files being written; remains of a killed process are removed after a day
    <folder>/.parts/…                   uploads in parts, removed after a day if not completed
    <folder>/.upload-secret             signs the URLs of uploads; deleting it revokes all permits

- Links are not followed anywhere in a path, so no path leaves the folder. Only regular files are read.
- A version is the file's inode, size and time of change, which no program can set back. The file system keeps that time
  in steps of a few milliseconds: a file that is rewritten in place twice within one step, to the same size, looks the
  same.
- Every step opens what it needs, on a thread, and closes it before it returns: a cancellation leaves nothing open, and
  reading by path sees every replacement.
"""

import asyncio
import errno
import hmac
import os
import secrets
import shutil
import stat
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryFile
from typing import ParamSpec, Self, TypeVar
from urllib.parse import quote, unquote, urlsplit

import structlog

from shared.audience.rules.audiences import File
from shared.core.errors import Conflict, Denied, Forbidden, Invalid, NotFound, Unavailable
from shared.drivers.blobs import CHUNK_BYTES
from shared.drivers.blobs.paths import FIELD, MISMATCHED, Place, buckets_of, find_place, invalid_path
from shared.jobs.rules.uploads import MIN_PART_BYTES
from shared.runtime.clock import Clock, SystemClock

log = structlog.get_logger(__name__)
ROUTE = "/uploads/"
_SECRET = ".upload-secret"


def permitted_url(folder: Path, path: str, expires: int) -> str:
    """The URL, relative to the API's root, at which `path` may be PUT until `expires` (epoch seconds). Blocks."""
    signature = _signature(_secret(folder), path, str(expires))
    return f"{ROUTE}{quote(path)}?expires={expires}&signature={signature}"


def check_permit(folder: Path, path: str, expires: str, signature: str, *, now: float) -> None:
    """Raise `Forbidden` unless the signature matches and the URL has not expired. Blocks."""
    right = _signature(_secret(folder), path, expires)
    if not hmac.compare_digest(signature.encode(errors="replace"), right.encode()):
        raise Forbidden("this is not a URL that was given out for uploading")
    if now >= int(expires):
        raise Forbidden("this URL has expired: ask for another one")


def _signature(secret: bytes, path: str, expires: str) -> str:
    return hmac.digest(secret, f"PUT\n{expires}\n{path}".encode(errors="replace"), "sha256").hex()


def _secret(folder: Path) -> bytes:
    file = folder / _SECRET
    with suppress(FileNotFoundError):
        return file.read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{_SECRET}.{secrets.token_hex(8)}"
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
        written.write(secrets.token_bytes(32))
    # Two processes may come here at once; a link, unlike a renaming, keeps the file of the first one.
    with suppress(FileExistsError):
        os.link(draft, file)
    draft.unlink()
    return file.read_bytes()


class FolderParts:
    """The parts of uploads, a folder each. `begin` removes uploads that were untouched for `abandoned_seconds`."""

    def __init__(self, folder: Path, *, abandoned_seconds: float) -> None:
        self._folder = folder
        self._abandoned = abandoned_seconds

    def begin(self) -> str:
        self._folder.mkdir(parents=True, exist_ok=True)
        for old in self._folder.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - old.stat().st_mtime > self._abandoned:
                    self._remove(old)
        token = secrets.token_hex(16)
        (self._folder / token).mkdir(mode=0o700)
        return token

    def put(self, path: str, token: str, number: int, content: bytes) -> str:
        folder = self._folder / token
        draft = folder / f".{secrets.token_hex(8)}"
        try:
            draft.write_bytes(content)
            draft.replace(folder / _name(number))
        except FileNotFoundError:
            raise no_upload(path) from None
        finally:
            draft.unlink(missing_ok=True)
        return _part_version(content)

    def join(self, path: str, token: str, parts: Sequence[tuple[int, str]], target: Path) -> None:
        folder = self._folder / token
        # This never makes the file: a thread that outlived its task must not restore a file that the task removed.
        with target.open("r+b") as joined:
            for number, version in parts:
                content = _read(path, folder, number, version)
                if len(content) < MIN_PART_BYTES and number != parts[-1][0]:
                    raise _mismatch(path, "EntityTooSmall")
                joined.write(content)

    def drop(self, token: str) -> None:
        """Forget an upload; a missing one is no error."""
        with suppress(FileNotFoundError):
            self._remove(self._folder / token)

    def _remove(self, folder: Path) -> None:
        """Rename the folder, then remove it. A later `begin` removes remains."""
        gone = self._folder / f".{secrets.token_hex(16)}"
        folder.rename(gone)
        try:
            shutil.rmtree(gone)
        except OSError as error:
            log.warning("parts not removed", folder=str(gone), reason=error.strerror or str(error))


def no_upload(path: str) -> NotFound:
    """The error for a caller that goes on with an upload that is over."""
    return NotFound(f"{path}: there is no such upload", field=FIELD, value=path)


def _name(number: int) -> str:
    return f"{number:05}"


def _part_version(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _read(path: str, folder: Path, number: int, version: str) -> bytes:
    try:
        content = (folder / _name(number)).read_bytes()
    except FileNotFoundError:
        raise (_mismatch(path, "InvalidPart") if folder.exists() else no_upload(path)) from None
    if _part_version(content) != version:
        raise _mismatch(path, "InvalidPart")
    return content


def _mismatch(path: str, code: str) -> Conflict:
    return Conflict(f"{path}: {MISMATCHED[code]}", field=FIELD, value=path)


BUCKET = "carillon"
NAME_BYTES = 255  # the limit of nearly every file system
ABANDONED_SECONDS = 86_400.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # opening a named pipe must not block
_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_OF_ANOTHER_KIND = {errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO}
_WITHOUT_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}
P = ParamSpec("P")
T = TypeVar("T")


class FolderBlobs:
    """See `shared.drivers.blobs.Blobs`."""

    def __init__(self, folder: Path, buckets: frozenset[str], clock: Clock) -> None:
        self.bucket = BUCKET
        self._folder = folder
        self._drafts = folder / ".partial"
        self._parts = FolderParts(folder / ".parts", abandoned_seconds=ABANDONED_SECONDS)
        self._buckets = buckets
        self._clock = clock

    @classmethod
    def open(cls, url: str, *, allowed_buckets: Iterable[str] = (), clock: Clock | None = None) -> Self:
        """Use the folder of `file:///absolute/path`; the first write makes it. Raises `Invalid`."""
        parts = urlsplit(url)
        folder = unquote(parts.path)
        if parts.netloc or not folder.startswith("/") or parts.query or parts.fragment or "\0" in folder:
            raise Invalid("needs file:///absolute/path", field="blobs.url")
        return cls(Path(folder), buckets_of(BUCKET, [*allowed_buckets]), clock or SystemClock())

    async def stat(self, path: str) -> File:
        return await _on_thread(self._stat, path, self._place(path))

    async def read(self, blob: File, start: int, end: int) -> AsyncGenerator[bytes]:
        place = self._place(blob.path)
        at, end = start, min(end, blob.size)
        while at < end:
            chunk = await _on_thread(self._read, blob, place, at, min(CHUNK_BYTES, end - at))
            at += len(chunk)
            yield chunk

    async def write(self, path: str, parts: AsyncIterator[bytes]) -> None:
        place = self._place(path)
        draft = self._drafts / secrets.token_hex(16)
        try:
            await _on_thread(self._begin, draft)
            async for part in parts:
                await _on_thread(_append, draft, part)
            await _on_thread(self._show, draft, path, place)
        finally:
            await _on_thread(draft.unlink, missing_ok=True)

    async def begin_parts(self, path: str) -> str:
        self._place(path)
        return await _on_thread(self._parts.begin)

    async def write_part(self, path: str, token: str, number: int, content: bytes) -> str:
        return await _on_thread(self._parts.put, path, token, number, content)

    async def join_parts(self, path: str, token: str, parts: Sequence[tuple[int, str]]) -> None:
        place = self._place(path)
        draft = self._drafts / secrets.token_hex(16)
        try:
            await _on_thread(self._begin, draft)
            await _on_thread(self._parts.join, path, token, parts, draft)
            shown = await _on_thread(self._show_first, draft, path, place)
            await _on_thread(self._parts.drop, token)
        finally:
            await _on_thread(draft.unlink, missing_ok=True)
        if not shown:
            raise no_upload(path)

    async def drop_parts(self, path: str, token: str) -> None:
        self._place(path)
        await _on_thread(self._parts.drop, token)

    async def upload_url(self, path: str, *, seconds: int) -> str:
        self._place(path)
        expires = int(self._clock.now().timestamp()) + seconds
        return await _on_thread(permitted_url, self._folder, path, expires)

    async def accept_upload(
        self, path: str, *, expires: str, signature: str, parts: AsyncIterator[bytes], max_bytes: int
    ) -> None:
        now = self._clock.now().timestamp()
        await _on_thread(check_permit, self._folder, path, expires, signature, now=now)
        await self.write(path, _limit_size(parts, max_bytes))

    async def make_bucket(self) -> None:
        """Do nothing: the folder is the bucket, and its first file makes it."""

    async def verify(self) -> None:
        await _on_thread(self._verify)

    async def close(self) -> None: ...

    def _place(self, path: str) -> Place:
        place = find_place(path, self._buckets)
        if not all(place.parts):
            raise invalid_path(path, "no part of the key may be empty where files lie in a folder")
        if max(len(part.encode()) for part in place.parts) > NAME_BYTES:
            raise invalid_path(path, f"no part of the key may have over {NAME_BYTES} bytes where files lie in a folder")
        return place

    def _stat(self, path: str, place: Place) -> File:
        try:
            with self._open_file(place) as file:
                found = os.fstat(file)
        except FileNotFoundError:
            raise NotFound(f"{path}: there is no such file", field=FIELD, value=path) from None
        return File(path, found.st_size, _version(found))

    def _read(self, blob: File, place: Place, at: int, size: int) -> bytes:
        try:
            with self._open_file(place) as file:
                chunk = os.pread(file, size, at)
                # The version is checked after reading: a change shows in it before the new bytes can be read.
                unchanged = _version(os.fstat(file)) == blob.version
        except FileNotFoundError:
            raise Invalid(f"{blob.path}: the file is gone", field=FIELD, value=blob.path) from None
        if not chunk or not unchanged:
            raise Invalid(f"{blob.path}: the file has changed", field=FIELD, value=blob.path)
        return chunk

    def _verify(self) -> None:
        """Write a file without a name, which no program can see. The first real file makes the folder."""
        folder = next(folder for folder in (self._folder, *self._folder.parents) if folder.exists())
        if folder != self._folder:
            if not os.access(folder, os.W_OK | os.X_OK):
                raise Denied(f"{self._folder} is missing, and cannot be made in {folder}")
            return
        next(folder.iterdir(), None)
        with TemporaryFile(dir=folder) as file:
            file.write(b"doctor")
            file.flush()
            os.fsync(file.fileno())

    def _begin(self, draft: Path) -> None:
        self._drafts.mkdir(parents=True, exist_ok=True)
        for old in self._drafts.iterdir():
            with suppress(FileNotFoundError):
                found = old.stat()
                # A file with a second name is visible: removing this name would give it another version.
                if time.time() - found.st_mtime > ABANDONED_SECONDS and found.st_nlink < 2:
                    old.unlink()
        os.close(os.open(draft, _DRAFT, 0o600))

    def _show_first(self, draft: Path, path: str, place: Place) -> bool:
        """Show the draft unless there is an object, which a job may be reading."""
        try:
            self._show(draft, path, place, move=_move_first)
        except FileExistsError:
            return False
        return True

    def _show(self, draft: Path, path: str, place: Place, *, move: Callable[..., None] = os.replace) -> None:
        *folders, name = place.bucket, *place.parts
        try:
            with self._open_folder(folders, make=True) as folder:
                _sync(draft)
                move(draft, name, dst_dir_fd=folder)
                os.fsync(folder)
        except OSError as error:
            if error.errno in _OF_ANOTHER_KIND:
                raise invalid_path(
                    path, "a folder has its name, or a file or a link lies where it needs a folder"
                ) from None
            raise

    @contextmanager
    def _open_file(self, place: Place) -> Iterator[int]:
        """A descriptor of the file. Raises `FileNotFoundError` for anything but a regular file."""
        *folders, name = place.bucket, *place.parts
        try:
            with self._open_folder(folders) as folder:
                file = os.open(name, _FILE, dir_fd=folder)
        except OSError as error:
            if error.errno in _OF_ANOTHER_KIND:
                raise FileNotFoundError from None
            raise
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise FileNotFoundError
            yield file
        finally:
            os.close(file)

    @contextmanager
    def _open_folder(self, names: list[str], *, make: bool = False) -> Iterator[int]:
        """A descriptor of a folder below the root, opened step by step, so that no link can come in between."""
        folder = os.open(self._folder, _FOLDER)
        try:
            for name in names:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)


def _version(found: os.stat_result) -> str:
    return f"{found.st_ino}-{found.st_size}-{found.st_ctime_ns}"


def _append(draft: Path, part: bytes) -> None:
    # This never makes the file: a thread that outlived its task must not restore a file that the task removed.
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_APPEND), "wb") as file:
        file.write(part)


def _move_first(draft: Path, name: str, *, dst_dir_fd: int) -> None:
    """Raises `FileExistsError`. Without support for links it cannot tell: then the last file stays."""
    try:
        os.link(draft, name, dst_dir_fd=dst_dir_fd)
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS:
            raise
        os.replace(draft, name, dst_dir_fd=dst_dir_fd)
    else:
        draft.unlink()


def _sync(draft: Path) -> None:
    with draft.open("rb") as file:
        os.fsync(file.fileno())


async def _limit_size(parts: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    size = 0
    async for part in parts:
        size += len(part)
        if size > max_bytes:
            raise Invalid(f"the file must have at most {max_bytes} bytes", field="body")
        yield part


async def _on_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do blocking work on a thread. A refusal of the file system is `Unavailable`."""
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except PermissionError as error:
        raise Denied(f"the folder of files is closed to us: {error.strerror or error}") from error
    except OSError as error:
        raise Unavailable(f"the folder of files cannot be used: {error.strerror or error}") from error
