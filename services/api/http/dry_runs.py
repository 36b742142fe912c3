"""Dry runs: `?dryRun=true` asks for figures alone. A request that comes near to that name must never act."""

from services.api.http import paging
from services.api.http.identity import Connection

DRY_RUN_NAME = "dryRun"
_FOLDED = DRY_RUN_NAME.lower()


def is_dry_run(connection: Connection) -> bool:
    """Whether the request asks for figures alone. Raises `Invalid` for another value than true or false."""
    return paging.read_flag(connection, DRY_RUN_NAME)


def means_dry_run(name: str) -> bool:
    """Whether a name is `dryRun`, however it is written: `dry_run`, `dryrun`, `Dry-Run`."""
    return name.replace("_", "").replace("-", "").strip().lower() == _FOLDED


def contains_dry_run(content: bytes) -> bool:
    """Whether a body that no route reads has such a name in it."""
    return _FOLDED.encode() in content.replace(b"_", b"").replace(b"-", b"").lower()
