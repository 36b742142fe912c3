"""Uploads in parts for files in a folder.

    <.parts>/<token>/00001    the first part
    <.parts>/<token>/.<…>     a part that is being written
    <.parts>/.<…>             an upload that is over, and is being removed

A part shows whole, and its version is the hash of its content. So joining finds parts that another process has
replaced, or that a crash of the machine has left half written. An upload ends in one step: its folder is renamed before
its content is removed. All methods block.
"""

import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import structlog

from shared.blobs.paths import FIELD
from shared.blobs.refusals import MISMATCHED
from shared.domain.errors import Conflict, NotFound
from shared.domain.jobs.uploads import MIN_PART_BYTES

log = structlog.get_logger(__name__)


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
        """Store a part, in place of an earlier one of its number; return its version."""
        folder = self._folder / token
        draft = folder / f".{secrets.token_hex(8)}"
        try:
            draft.write_bytes(content)
            draft.replace(folder / _name(number))
        except FileNotFoundError:
            raise no_upload(path) from None
        finally:
            draft.unlink(missing_ok=True)
        return _version(content)

    def join(self, path: str, token: str, parts: Sequence[tuple[int, str]], target: Path) -> None:
        """Write these parts, each in its version, into the existing empty file."""
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


def _version(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _read(path: str, folder: Path, number: int, version: str) -> bytes:
    try:
        content = (folder / _name(number)).read_bytes()
    except FileNotFoundError:
        raise (_mismatch(path, "InvalidPart") if folder.exists() else no_upload(path)) from None
    if _version(content) != version:
        raise _mismatch(path, "InvalidPart")
    return content


def _mismatch(path: str, code: str) -> Conflict:
    return Conflict(f"{path}: {MISMATCHED[code]}", field=FIELD, value=path)
