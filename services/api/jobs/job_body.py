"""The body of a job's POST, and the checks that it passes, in Marathon's order and with its words."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from services.api.http import wire
from services.api.http.dry_runs import check_metadata
from shared.domain.audience.zones import NEXT_DAY, SKIP, check_strategy
from shared.domain.errors import Invalid
from shared.domain.ids import read_uuid
from shared.domain.instants import LATEST, ns
from shared.domain.jobs.jobs import NAME_CHARACTERS, check_job_name
from shared.domain.messages.credentials import OnUnknown
from shared.domain.messages.jobs import LARGEST_SHARE, Duplicates, Halt
from shared.domain.messages.suppressions import LIST_CHARACTERS
from shared.domain.push.records import SERVICES

_PROTOCOL = "s3://"
_LATEST_NS = ns(LATEST)
SOME_NS = 10**18  # in 2001; what is less today is seconds, milliseconds or microseconds
_UNITS = {"seconds": 10**9, "milliseconds": 10**6, "microseconds": 10**3}

_HALT = {
    "properties": {
        "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": Halt().share},
        "minimum": {"type": "integer", "minimum": 0, "default": Halt().minimum},
    },
    "additionalProperties": False,
}

Nanoseconds = Meta(extra_json_schema={"format": "int64"})


class PushBody(wire.Body, frozen=True, kw_only=True):
    """The fields of every job: a push has no others."""

    id: Annotated[str, Meta(description="An id of the caller's choice, a UUID.")] = ""
    name: Annotated[
        str,
        Meta(
            description="A name for people, as lists show it. By default that of the template.",
            extra_json_schema={"maxLength": NAME_CHARACTERS, "examples": ["Autumn sale"]},
        ),
    ] = ""
    service: Annotated[str, Meta(extra_json_schema={"enum": list(SERVICES)})] = ""
    credential: Annotated[
        str, Meta(description="In the place of `service`, a provider account by its name or id: it sends messages.")
    ] = ""
    filters: Annotated[
        dict[str, Any],
        Meta(
            description="Column to value: equal to one of a comma list; `NOT` before the column: to none of it. "
            "No filters: everybody.",
            extra_json_schema={"additionalProperties": {"type": "string"}, "examples": [{"locale": "en,pt"}]},
        ),
    ] = msgspec.field(default_factory=dict)
    context: Annotated[dict[str, Any], Meta(description="Fills the tags of the templates.")] = msgspec.field(
        default_factory=dict
    )
    metadata: Annotated[
        dict[str, Any], Meta(description="Goes out with each message. `dryRun: true` replaces the device tokens.")
    ] = msgspec.field(default_factory=dict)
    expires_at: Annotated[int, Nanoseconds, Meta(description="The end of the job: the unsent rest is dropped.")] = 0
    starts_at: Annotated[
        int,
        Nanoseconds,
        Meta(
            description="When to start, in the future and before `expiresAt`; unset: at once. A localized job may have "
            "begun: zones whose start has passed go by `pastTimeStrategy`, and where a day later has passed as well, "
            "they begin at once."
        ),
    ] = 0
    localized: Annotated[
        bool,
        Meta(
            description="One job for each time zone, which starts when its clocks show what `startsAt` reads in UTC, "
            "or as a text without a zone. The answer is the last zone's job, with all of them as `zones`."
        ),
    ] = False
    past_time_strategy: Annotated[
        str,
        Meta(
            description="For a zone whose start has passed: `skip` it, or start a day later (`nextDay`, or unset).",
            extra_json_schema={"enum": ["", SKIP, NEXT_DAY]},
        ),
    ] = ""
    csv_path: Annotated[
        str,
        Meta(
            description="A CSV file, `<bucket>/<key>`, whose first column names the users behind a header of any name; "
            "with a `credential`, the header names the columns.",
            extra_json_schema={"examples": ["pushes/jobs/users.csv"]},
        ),
    ] = ""
    control_group: Annotated[
        float,
        Meta(
            description="The share of users who get nothing, at least 0 and less than 1.",
            extra_json_schema={"minimum": 0, "exclusiveMaximum": 1},
        ),
    ] = 0.0


class JobBody(PushBody, frozen=True, kw_only=True):
    """A job to be made. A time is nanoseconds since 1970 or a text as `2026-12-24T09:00:00Z`; 0 and `""` are unset."""

    recipient_column: Annotated[
        str,
        Meta(
            description="With a credential: the column of the file or of the table that has the recipients. By default "
            "`recipient`, and `token` for the kinds fcm and apns.",
            extra_json_schema={"maxLength": 255},
        ),
    ] = ""
    locale: Annotated[
        str,
        Meta(
            description="With a credential: the locale of the template for recipients whose own has none. By default "
            "`en`.",
            extra_json_schema={"maxLength": 10},
        ),
    ] = ""
    default_region: Annotated[
        str,
        Meta(
            description="With a credential: the country of phone numbers that name none, by its two letters.",
            extra_json_schema={"examples": ["SG"]},
        ),
    ] = ""
    duplicates: Annotated[
        str,
        Meta(
            description="With a credential: whether who stands in the audience twice gets one message (`once`, or "
            "unset) or two (`each`).",
            extra_json_schema={"enum": ["", *Duplicates]},
        ),
    ] = ""
    on_unknown: Annotated[
        str,
        Meta(
            description="With a credential: what becomes of messages of which nobody can tell whether the provider has "
            "them: nothing (`hold`), or they are sent again (`retry`). By default as the credential says.",
            extra_json_schema={"enum": ["", *OnUnknown]},
        ),
    ] = ""
    halt_on: Annotated[
        dict[str, Any] | UnsetType | None,
        Meta(
            description="With a credential: the job is held once more than `minimum` of its messages, and more than "
            "this `share` of those that the provider has answered, bounced or were refused; `null`: never. By default "
            f"{Halt().share} and {Halt().minimum} for mail, and never for others.",
            extra_json_schema=_HALT,
        ),
    ] = UNSET
    share: Annotated[
        int,
        Meta(
            description="With a credential whose order is `shares`: how much of its rate the job gets beside others.",
            extra_json_schema={"minimum": 1, "maximum": LARGEST_SHARE},
        ),
    ] = 1
    list: Annotated[
        str,
        Meta(
            description="With a credential: the list that recipients can unsubscribe from; unset: all.",
            extra_json_schema={"maxLength": LIST_CHARACTERS},
        ),
    ] = ""
    transactional: Annotated[
        bool, Meta(description="With a credential: whether the messages go to those too who have unsubscribed.")
    ] = False
    max_recipients: Annotated[
        int,
        Meta(
            description="With a credential: a job with more recipients is stopped while it is planned; 0: no limit.",
            extra_json_schema={"minimum": 0},
        ),
    ] = 0


def read_names(text: str) -> tuple[str, ...]:
    """The template names of a query, which are not trimmed. Raises `Invalid` if there are none."""
    if not text:
        raise Invalid("name a template: ?template=NAME", field="template")
    return tuple(text.split(","))


def read_id(text: str) -> str | None:
    """The id that the caller chose, if any: Marathon's own client sends the nil UUID for none."""
    if text in {"", wire.NIL_UUID}:
        return None
    return read_uuid(text, field="id")


def check(body: JobBody, *, now: int) -> None:
    """Raise `Invalid` for the first field that breaks a rule; `now` in ns."""
    if body.credential and body.service:
        raise Invalid("a job has a credential or a service, not both", field="credential", value=body.credential)
    if not body.credential and body.service not in SERVICES:
        raise _invalid("service", f"it must be {' or '.join(SERVICES)}, or `credential` must be set", body.service)
    _check_unit("expiresAt", body.expires_at)
    _check_unit("startsAt", body.starts_at)
    if body.expires_at != 0 and body.expires_at <= now:
        raise _invalid("expiresAt", "it must lie in the future, or be left out", body.expires_at)
    if body.starts_at != 0 and not body.localized and body.starts_at <= now:
        raise _invalid("startsAt", "it must lie in the future, or be left out to start at once", body.starts_at)
    if body.starts_at > _LATEST_NS:
        raise _invalid("startsAt", "it must lie before the year 2201", body.starts_at)
    if 0 < body.expires_at <= body.starts_at:
        raise _invalid("expiresAt", "it must lie after startsAt", body.expires_at)
    if not 0 <= body.control_group < 1:
        raise _invalid("controlGroup", "it must be at least 0 and less than 1", body.control_group)
    if body.filters and body.csv_path:
        raise Invalid("invalid filters: send filters or csvPath, not both", field="filters")
    if _PROTOCOL in body.csv_path:
        raise _invalid("csvPath", "leave out s3://, as in bucket/folder/users.csv", body.csv_path)
    check_job_name(body.name)
    check_metadata(body.metadata)
    for key, value in body.filters.items():
        if not isinstance(value, str):
            raise _invalid(f"filters.{key}", "it must be a string", value)


def check_localized(body: JobBody) -> None:
    """Raise `Invalid` for a localized job without a start, and for an unknown `pastTimeStrategy` of any job."""
    check_strategy(body.past_time_strategy)
    if body.localized and body.starts_at == 0:
        raise Invalid("a localized job needs a start: send `startsAt`", field="localized")


def _check_unit(field: str, value: int) -> None:
    """Raise `Invalid` for an instant in a unit other than nanoseconds."""
    for unit, factor in _UNITS.items():
        if SOME_NS <= value * factor <= _LATEST_NS:
            rule = f"it must be in nanoseconds since 1970; this looks like {unit}: send {value * factor}"
            raise _invalid(field, rule, value)
    if value and value < SOME_NS:
        raise _invalid(field, "it must lie in the future, in nanoseconds since 1970 or as 2026-12-24T09:00:00Z", value)


def _invalid(field: str, rule: str, value: Any) -> Invalid:
    return Invalid(f"invalid {field}: {rule}", field=field, value=value)
