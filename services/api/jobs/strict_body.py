"""The body of a new job, without unknown fields: a misspelt `filters` would send to everybody."""

from services.api.http import wire
from services.api.jobs.job_body import JobBody
from shared.domain.errors import Invalid

_ANSWERED = frozenset(
    [
        "totalBatches",
        "completedBatches",
        "totalUsers",
        "completedUsers",
        "totalTokens",
        "completedTokens",
        "dbPageSize",
        "completedAt",
        "createdBy",
        "app",
        "appId",
        "jobGroupId",
        "templateName",
        "status",
        "feedbacks",
        "controlGroupCsvPath",
        "createdAt",
        "updatedAt",
        "statusEvents",
    ]
)
"""Marathon's Go client sends these too, as it writes all fields of a job."""


def read_body(content: bytes, whole: type[JobBody], *, lenient: bool) -> JobBody:
    """Read a job's body; `whole` has the fields of all kinds of jobs.

    Raises:
        Invalid: a field breaks a rule, or, unless `lenient`, is unknown or for other kinds of jobs.
    """
    if lenient:
        return wire.read(content, JobBody)
    wire.check_keys(content, wire.names_of(whole) | _ANSWERED)
    body = wire.read(content, JobBody)
    if not body.credential:
        _check_push(content)
    return body


def _check_push(content: bytes) -> None:
    try:
        wire.check_keys(content, wire.names_of(JobBody) | _ANSWERED)
    except Invalid as error:
        raise Invalid(f"{error.field} needs a credential: a push job has none", field=error.field) from None
