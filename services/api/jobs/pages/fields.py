"""Fields of jobs and templates that hold JSON or an instant, as the API takes them."""

import msgspec

from services.api.http.pages.typed import read_instant, read_object
from services.api.http.pages.visits import Visit
from shared.domain.instants import ns


def read_object_or_empty(visit: Visit, field: str) -> msgspec.Raw:
    """The JSON object that was typed; an empty one where nothing was. Raises `ApiProblem` where it is none."""
    given = read_object(visit.form, field)
    return msgspec.Raw(b"{}") if given is None else given


def read_instant_ns(visit: Visit, field: str) -> int:
    """The instant that was typed, in ns since the epoch; 0 for none. Raises `ApiProblem` where it is none."""
    at = read_instant(visit.form, field)
    return ns(at) if at else 0
