"""The body of a new job, without fields that nobody knows: a misspelt `filters` would send to everybody."""

from services.api.http import wire
from services.api.jobs.job_body import JobBody
from services.api.jobs.job_view import JobView
from shared.domain.errors import Invalid

_ANSWERED = wire.names_of(JobView) | {"completedUsers"}
"""What answers have, `completedUsers` in older versions of Marathon: its Go client sends all of it."""


def read_body(content: bytes, whole: type[JobBody], *, lenient: bool) -> JobBody:
    """Read a job's body; `whole` has the fields of all kinds of jobs.

    Raises:
        Invalid: a field breaks a rule, or, unless `lenient`, is unknown or for other kinds of jobs.
    """
    if not lenient:
        wire.check_keys(content, wire.names_of(whole) | _ANSWERED)
    body = wire.read(content, JobBody)
    if not lenient and not body.credential:
        _check_push(content)
    return body


def _check_push(content: bytes) -> None:
    try:
        wire.check_keys(content, wire.names_of(JobBody) | _ANSWERED)
    except Invalid as error:
        raise Invalid(f"{error.field} needs a credential: a push job has none", field=error.field) from None
