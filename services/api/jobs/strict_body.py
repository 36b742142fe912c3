"""The body of a new job, without unknown fields: a misspelt `filters` would send to everybody."""

from typing import Any

from msgspec.structs import asdict, fields

from services.api.http import wire
from services.api.jobs.job_body import SOME_NS, JobBody, PushBody
from shared.domain.errors import Invalid
from shared.domain.instants import ns, read_instant, read_wall_clock

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


def read_body(content: bytes, *, lenient: bool) -> JobBody:
    """Read a job's body. Unless `lenient`, an unknown field is `Invalid`, and so is one that only jobs with a
    credential have."""
    raw = wire.first_value(content)
    if lenient:
        push = wire.object_of(raw, PushBody, _read_instants)
        return wire.object_of(raw, JobBody, _read_instants) if push.credential else JobBody(**asdict(push))
    wire.check_keys(raw, wire.names_of(JobBody), _ANSWERED)
    body = wire.object_of(raw, JobBody, _read_instants)
    if not body.credential:
        _check_push(body)
    return body


def _read_instants(fields: dict[str, Any]) -> None:
    """Replace instants in text by nanoseconds. A union of types would reach the clients, which are generated from
    these."""
    for name in ("startsAt", "expiresAt"):
        text = fields.get(name)
        if isinstance(text, str):
            read = read_wall_clock if name == "startsAt" and fields.get("localized") is True else read_instant
            at = ns(read(text, field=name)) if text else 0
            if text and at < SOME_NS:
                raise Invalid("it must lie in the future", field=name, value=text)
            fields[name] = at


def _check_push(body: JobBody) -> None:
    """A generated client sends every field that has a default."""
    of_push, unset = wire.names_of(PushBody), JobBody()
    for field in fields(body):
        if field.encode_name not in of_push and getattr(body, field.name) != getattr(unset, field.name):
            raise Invalid(f"{field.encode_name} needs a credential: a push job has none", field=field.encode_name)
