"""The secrets that an embedded Carillon makes for itself, and keeps beside its data: the key for the secrets of
credentials, and the secret that signs callbacks. Only this user can read them."""

import base64
import os
from collections.abc import Callable
from pathlib import Path

from shared.domain.accounts.signing_secrets import PREFIX
from shared.domain.errors import Conflict, Invalid
from shared.outgoing.signing import check_secret
from shared.secrets import KeyRing, fresh_key, read_keys

KEY_FILE, SIGNING_FILE = "secret.key", "signing.key"


def own_key(folder: Path, *, makes: bool = True) -> str:
    """The folder's key. If there is none, it is made, or is empty unless this `makes` one.

    Raises:
        Conflict: the file holds no key. Another one would open none of the secrets.
        OSError: it cannot be read or made.
    """
    lost = "no key: the secrets of credentials open by the one that it held"
    if not makes and not (folder / KEY_FILE).exists():
        return ""
    return _keep(folder / KEY_FILE, fresh_key, lambda text: len(read_keys(text)) == 1 and KeyRing.accepts(text), lost)


def own_signing_secret(folder: Path, *, makes: bool = True) -> str:
    """The folder's secret for signatures, as `own_key`."""
    if not makes and not (folder / SIGNING_FILE).exists():
        return ""
    lost = "no signing secret: receivers verify callbacks by those that derive from the one that it held"
    return _keep(folder / SIGNING_FILE, lambda: PREFIX + base64.b64encode(os.urandom(32)).decode(), _can_sign, lost)


def _keep(file: Path, fresh: Callable[[], str], is_good: Callable[[str], bool], lost: str) -> str:
    if not file.exists():
        _write_whole(file, fresh() + "\n")
    text = file.read_text("utf-8", "replace").strip()
    if not is_good(text):
        raise Conflict(f"{file} holds {lost}; restore it")
    return text


def _can_sign(secret: str) -> bool:
    try:
        check_secret(secret, "")
    except Invalid:
        return False
    return True


def _write_whole(file: Path, text: str) -> None:
    """Write a new file that is there whole or not at all, whenever this process ends."""
    fresh = file.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as writing:
        writing.write(text)
        writing.flush()
        os.fsync(writing.fileno())
    fresh.replace(file)
