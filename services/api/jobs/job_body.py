"""The body of `POST` of a job: Marathon's fields by Marathon's reading, and the fields of a job with an account.

A body without `lenient` has no unknown fields: a misspelt `filters` would send to everyone.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, fields

from services.api.http import bodies
from services.api.http.paging import check_metadata
from shared.accounts.rules.apps import App
from shared.audience.rules.zones import NEXT_DAY, SKIP, check_strategy
from shared.core.errors import Invalid
from shared.core.ids import read_uuid
from shared.core.instants import LATEST, ns, read_instant, read_wall_clock
from shared.jobs.rules.batches import Receipt
from shared.jobs.rules.groups import Notice
from shared.jobs.rules.jobs import NAME_CHARACTERS, Job, check_job_name
from shared.jobs.rules.templates import Template
from shared.messages.rules.credentials import OnUnknown
from shared.messages.rules.jobs import LARGEST_SHARE, Duplicates, Halt
from shared.messages.rules.suppressions import LIST_CHARACTERS
from shared.push.rules.records import SERVICES

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


class PushBody(bodies.Body, frozen=True, kw_only=True):
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
            description="With a credential: whether a recipient who occurs twice gets one message (`once`, or "
            "unset) or two (`each`).",
            extra_json_schema={"enum": ["", *Duplicates]},
        ),
    ] = ""
    on_unknown: Annotated[
        str,
        Meta(
            description="With a credential: whether messages that the provider may or may not have are left "
            "(`hold`) or sent again (`retry`). By default as the credential says.",
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
    if text in {"", bodies.NIL_UUID}:
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


def check_repeated(body: JobBody) -> None:
    """Raise `Invalid` for a field that only one job can have, because a schedule starts many."""
    if read_id(body.id):
        raise Invalid("leave out the id: each occurrence starts a job of its own", field="id", value=body.id)
    if body.localized:
        raise Invalid("a schedule cannot start a localized job: POST it, with its startsAt", field="localized")
    if body.starts_at:
        raise Invalid("leave out startsAt: each job starts when its occurrence is due", field="startsAt")
    if body.expires_at:
        raise Invalid("give expires_after_seconds beside the payload: it counts from each start", field="expiresAt")


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


class MessageCountsView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The messages of a job by state: `planned` is the sum of the states from `unsent` to `unknown`. `repeated` counts
    second calls of messages whose first one may have succeeded. `heldOut` and `duplicates` are no part of `planned`:
    recipients of a control group, and rows of the audience that repeat one before them."""

    planned: int
    unsent: int
    sending: int
    sent: int
    delivered: int
    read: int
    failed: int
    invalid: int
    unknown: int
    repeated: int
    held_out: int
    duplicates: int


class JobQueueView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The work ahead of a job in its credential: the running `jobs`, and their unsent `messages`.
    `startsIn` is in seconds, `null` if unknown: the job is held or has ended, or its credential does not
    send."""

    jobs: int
    messages: int
    starts_in: float | None


class AccountFigures(Struct, frozen=True, kw_only=True):
    """The figures of such a job in a `round`: its messages, the same as a `receipt`, what is ahead of it, and when it
    ends, if that is known. `options` are what it has of its own, by the names in the body of POST."""

    round: int
    messages: MessageCountsView
    receipt: Receipt
    queue: JobQueueView
    ends_at: datetime | None
    options: dict[str, Any]


class MessageSampleView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message by the template of one locale. It has the tag if recipients have values of their own, as in
    `{{name}}`. `bytes` is its size as JSON; `content` is `null` if it is too long to be shown."""

    locale: str
    bytes: int
    content: dict[str, Any] | None


class AccountPreview(Struct, frozen=True, kw_only=True, rename="camel"):
    """The messages that a job with a credential would send, and when. `recipients` counts those that would be called,
    in as much of the audience as there was time for: `exact` says that this was all, else the estimate takes
    the rest to be like it. Messages to `malformed` addresses and to `suppressed` ones would never be called, nor
    `unrendered` ones, which would be empty or too long; rows that are `repeated` get no message. With `unfilledTags`
    the job would be stopped. `samples` are of the first 20 locales.

    `queue` and `estimatedEnd` are estimates: they take the rate that the credential has now, and no other job to come.
    `estimatedEnd` is in nanoseconds since the epoch; 0 if unknown."""

    exact: bool
    recipients: int
    estimated_recipients: int | None
    malformed: int
    suppressed: int
    unrendered: int
    repeated: int
    columns: list[str]
    unfilled_tags: list[str]
    samples: list[MessageSampleView]
    queue: JobQueueView
    estimated_end: int


class Foreseen(Struct, frozen=True):
    """A preview; `None` where the job would fail over its file, as the `flaw` tells. There may be a flaw besides, and
    `notices` of what is probably a mistake."""

    preview: AccountPreview | None
    flaw: Invalid | None = None
    notices: Sequence[Notice] = ()


class OwnFields(Struct, frozen=True, kw_only=True):
    """The fields that such a job has besides those of all jobs, by the names in `Job`."""

    service: str
    credential_id: str
    table_kind: str
    options: dict[str, Any]


class AccountJobs(Protocol):
    """Reads and shows what such jobs have of their own. All raise `Unavailable`."""

    async def read(self, app: App, names: tuple[str, ...], body: JobBody) -> tuple[list[Template], OwnFields]:
        """The templates, and what the body says of the job's own. Raises `Invalid`, and `Conflict` if the account sends
        nothing now: all that can be known to be wrong with the account, the templates and the table."""

    async def confirm(self, job: Job) -> None:
        """Look at the account once more, now that the job is stored: its deletion may not have seen the job. Raises
        `Conflict` where it is gone."""

    async def foresee(self, job: Job, *, seconds: float) -> Foreseen:
        """The messages of a job that is not stored and has its templates. Its recipients are counted for `seconds`
        at most."""

    async def measure(self, job: Job, *, exact: bool) -> AccountFigures:
        """The figures of the job; of an open one, up to a second old unless they must be `exact`. In another round
        than the job's where it has been taken up again since it was read."""


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
    raw = bodies.first_value(content)
    if lenient:
        push = bodies.object_of(raw, PushBody, _read_instants)
        return bodies.object_of(raw, JobBody, _read_instants) if push.credential else JobBody(**asdict(push))
    bodies.check_keys(raw, bodies.names_of(JobBody), _ANSWERED)
    body = bodies.object_of(raw, JobBody, _read_instants)
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
    of_push, unset = bodies.names_of(PushBody), JobBody()
    for field in fields(body):
        if field.encode_name not in of_push and getattr(body, field.name) != getattr(unset, field.name):
            raise Invalid(f"{field.encode_name} needs a credential: a push job has none", field=field.encode_name)
