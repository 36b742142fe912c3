"""Doers: the callers that move a job, as its events name them."""

from services.api.http.identity import Connection, caller_of
from shared.domain.jobs.events import Doer


def doer_of(connection: Connection) -> Doer:
    """The caller behind a request."""
    caller = caller_of(connection)
    return Doer("token" if caller.is_service else "user", caller.name)
