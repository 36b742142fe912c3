"""`?dryRun=true`: a request that tells what would be done, and does nothing."""

from services.api.http import paging
from services.api.http.identity import Connection

DRY_RUN_NAME = "dryRun"


def is_dry_run(connection: Connection) -> bool:
    """Whether the request asks for figures alone. Raises `Invalid` where nobody can tell."""
    return paging.read_flag(connection, DRY_RUN_NAME)
