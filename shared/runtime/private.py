"""Files and folders that only this user may open, on a machine with other users."""

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.domain.errors import Conflict

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
    """Make a private folder. An existing one is closed to others if it is empty or holds one of `ours`.

    Raises:
        Conflict: the folder is another user's, or it is open to others and not Carillon's.
        OSError: it cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if not found.st_mode & _OTHERS:
        return
    names = {path.name for path in folder.iterdir()}
    if found.st_uid != os.geteuid() or (names and names.isdisjoint(ours)):
        raise Conflict(f"the data folder {folder} is open to other users: close it (chmod 700), or name another one")
    folder.chmod(0o700)
