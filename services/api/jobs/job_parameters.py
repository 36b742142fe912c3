"""The parameters of the routes of jobs: query parameters, a header, and positions in the list of jobs."""

from typing import Annotated

from msgspec import Meta, Struct

from services.api.http.routes import Parameter

TEMPLATE = Parameter(
    name="template",
    description="The name of the templates to send; of several, joined by commas, each user gets one.",
    schema={"type": "string", "minLength": 1},
    required=True,
)
NAMED = Parameter(
    name="template",
    description="Only jobs with exactly these names.",
    schema={"type": "string"},
    may_be_empty=True,  # as in Marathon: no filter
)
KEY = Parameter(
    name="Idempotency-Key",
    description="A repeated request with the same key is answered with the job that the first one made.",
    schema={"type": "string", "minLength": 1, "maxLength": 255},
    place="header",
)
EXACT = Parameter(
    name="exact",
    description="`true`: what is told of the job's messages is read now; otherwise it may be a second old.",
    schema={"type": "boolean"},
)


class JobPosition(Struct, frozen=True, array_like=True):
    """The place of a job in the list of its app's."""

    created_at: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    id: str
