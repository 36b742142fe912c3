"""Permits to put a file into a folder without credentials: a signed URL is valid until it expires.

A permit is the HMAC-SHA256 of what it allows. Its key is a secret in the folder that only the folder's owner can read.
All processes on the folder share it; deleting it revokes all permits.
"""

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from shared.domain.errors import Forbidden

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
