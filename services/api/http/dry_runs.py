"""`?dryRun=true`: a request that tells what would be done, and does nothing."""

from services.api.http import paging
from services.api.http.identity import Connection
from shared.domain.errors import Invalid

DRY_RUN_NAME = "dryRun"


def is_dry_run(connection: Connection) -> bool:
    """Whether the request asks for figures alone. Raises `Invalid` where nobody can tell."""
    asked = paging.first(connection, DRY_RUN_NAME)
    if asked not in {"", "true", "false"}:
        raise Invalid("dryRun is true or false", field=DRY_RUN_NAME, value=asked)
    return asked == "true"
