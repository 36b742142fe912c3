"""Secrets are masked in texts for people and logs; files and folders that only this user may open, on a machine with
other users.
"""

import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.core.errors import Conflict

# Neither pattern scans a text twice, so both take time in proportion to its length.
_URL_PASSWORD = re.compile(r"(\w://[^/\s:@]*:)([^\s'\"]*)")
_QUERY_SECRET = re.compile(
    r"([?&][\w.-]{0,40}(?:password|passwd|pwd|secret|token|signature|credential|key)=)[^&\s'\"#]+", re.IGNORECASE
)
_ASSIGNED_SECRET = re.compile(
    r"((?:secret|password|access_key|root_key)\w{0,40} ?= ?)(['\"])(?:\\.|(?!\2)[^\\])++\2", re.DOTALL
)


def may_hold_secrets(text: str) -> bool:
    """Whether `without_secrets` might change the text."""
    return "=" in text or "://" in text


def without_secrets(text: str) -> str:
    """Mask the password of every URL, the values of a URL's query with names such as `password` or `token`, and values
    assigned to names that contain `secret`, `password`, `access_key` or `root_key`."""
    if not may_hold_secrets(text):
        return text
    text = _URL_PASSWORD.sub(_without_password, text)
    text = _QUERY_SECRET.sub(r"\1***", text)
    return _ASSIGNED_SECRET.sub(r"\1\2***\2", text)


def _without_password(found: re.Match[str]) -> str:
    # A password may contain an @: the last one is before the host.
    password, at, rest = found[2].rpartition("@")
    return f"{found[1]}***@{rest}" if at and password else found[0]


_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@contextmanager
def private_files() -> Iterator[None]:
    """Files that this process and its children make in the block are closed to other users."""
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def make_private_folder(folder: Path, *, ours: Collection[str]) -> None:
    """Make a private folder. An existing one is closed to others if it is empty or holds one of `ours`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if not found.st_mode & _OTHERS:
        return
    names = {path.name for path in folder.iterdir()}
    if found.st_uid != os.geteuid() or (names and names.isdisjoint(ours)):
        raise Conflict(f"the data folder {folder} is open to other users: close it (chmod 700), or name another one")
    folder.chmod(0o700)


def write_private(file: Path, text: str) -> None:
    """Write a file that this user alone may read. It is there whole or not at all, whenever this process ends."""
    draft = file.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as writing:
        writing.write(text)
        writing.flush()
        os.fsync(writing.fileno())
    draft.replace(file)
