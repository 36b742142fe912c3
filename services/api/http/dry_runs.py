"""Dry runs: `?dryRun=true` asks for figures alone. A request with a similar name must never act."""

from typing import Any

from services.api.http import paging
from services.api.http.identity import Connection
from shared.domain.errors import Invalid, fold_name

DRY_RUN_NAME = "dryRun"
_FOLDED = fold_name(DRY_RUN_NAME)


def is_dry_run(connection: Connection) -> bool:
    """Whether the request asks only for figures. Raises `Invalid` for a value other than true or false."""
    return paging.read_flag(connection, DRY_RUN_NAME)


def means_dry_run(name: str) -> bool:
    """Whether a name is `dryRun` in any spelling: `dry_run`, `dryrun`, `Dry-Run`."""
    return fold_name(name) == _FOLDED


def contains_dry_run(content: bytes) -> bool:
    """Whether a body that no route reads contains such a name."""
    return _FOLDED.encode() in content.replace(b"_", b"").replace(b"-", b"").lower()


def check_metadata(metadata: dict[str, Any]) -> None:
    """Raise `Invalid` for a dry run that would send: `dryRun` in another spelling, or neither true nor false."""
    for key, value in metadata.items():
        if means_dry_run(key) and key != DRY_RUN_NAME:
            reason = f"invalid metadata: write {DRY_RUN_NAME} in place of {key!r}"
            raise Invalid(reason, field=f"metadata.{key}", value=value)
        if key == DRY_RUN_NAME and not isinstance(value, bool):
            raise Invalid(f"invalid metadata: {key} must be true or false", field=f"metadata.{key}", value=value)
