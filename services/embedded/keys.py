"""The key for the secrets of credentials that an embedded Carillon makes for itself, and keeps beside its data."""

import os
from pathlib import Path

from shared.domain.errors import Conflict
from shared.secrets import KeyRing, fresh_key, read_keys

KEY_FILE = "secret.key"


def own_key(folder: Path) -> str:
    """The folder's key, which is made where there is none. Only this user can read it.

    Raises:
        Conflict: what lies in its place is no key. Another one would open none of the secrets.
        OSError: it cannot be read or made.
    """
    file = folder / KEY_FILE
    if not file.exists():
        _write_whole(file, fresh_key() + "\n")
    text = file.read_text("utf-8", "replace").strip()
    if len(read_keys(text)) != 1 or not KeyRing.accepts(text):
        raise Conflict(f"{file} holds no key: the secrets of credentials open by the one that it held; restore it")
    return text


def _write_whole(file: Path, text: str) -> None:
    """Write a new file that is there whole or not at all, whenever this process ends."""
    fresh = file.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as writing:
        writing.write(text)
        writing.flush()
        os.fsync(writing.fileno())
    fresh.replace(file)
