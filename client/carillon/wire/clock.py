"""Schedules and their callbacks, occurrences and dead letters."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Generic

from msgspec import UNSET, Meta, Struct, UnsetType, field

from carillon.wire import At, ItemError, Payload, Result, Short


class RabbitCallback(Struct, Generic[Payload], frozen=True, kw_only=True, omit_defaults=True):
    """A message to RabbitMQ: to `queue`, or to `exchange` with `routing_key`. Done when the broker has confirmed it."""

    payload: Payload
    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    headers: Mapping[str, str] | None = None


class HttpCallback(Struct, Generic[Payload], frozen=True, kw_only=True):
    """A call, done when it is answered with 2xx. With a `secret` (`whsec_…`), which an answer does not show, it is
    signed by Standard Webhooks."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] | None = None
    payload: Payload | UnsetType = UNSET
    secret: str | None = None


class KafkaCallback(Struct, Generic[Payload], frozen=True, kw_only=True, omit_defaults=True):
    """A record for Kafka. Done when all replicas in sync have it."""

    payload: Payload
    topic: str
    key: str | None = None
    headers: Mapping[str, str] | None = None


class JobCallback(Struct, Generic[Payload], frozen=True, kw_only=True, omit_defaults=True):
    """A job of the app `app_id` from its `template` (of several, joined by commas, each user gets one). `payload` is
    the body of `POST /apps/{appId}/jobs`, without `id`, `localized`, `startsAt` and `expiresAt`: what is not sent after
    `expires_after_seconds` is dropped. While the job of an earlier occurrence is open, `overlap` says what becomes of
    this one: `skip` it, `queue` it until that job has ended, or `allow` both. Audience, file and templates are read
    when it starts, and the rights are those that the schedule's maker has then. Done when the job is stored."""

    app_id: str
    template: str
    payload: Payload
    overlap: str = "skip"
    expires_after_seconds: float | None = None


class RabbitBody(Struct, Generic[Payload], frozen=True, tag_field="type", tag="rabbitmq"):
    """A message to RabbitMQ."""

    data: RabbitCallback[Payload]


class HttpBody(Struct, Generic[Payload], frozen=True, tag_field="type", tag="http"):
    """An HTTP call."""

    data: HttpCallback[Payload]


class KafkaBody(Struct, Generic[Payload], frozen=True, tag_field="type", tag="kafka"):
    """A record for Kafka."""

    data: KafkaCallback[Payload]


class JobStartBody(Struct, Generic[Payload], frozen=True, tag_field="type", tag="job"):
    """A job."""

    data: JobCallback[Payload]


CallbackBody = Annotated[
    RabbitBody[Payload] | HttpBody[Payload] | KafkaBody[Payload] | JobStartBody[Payload],
    Meta(title="Callback", description="The call, message or job at each instant."),
]
AnyCallback = RabbitCallback[Payload] | HttpCallback[Payload] | KafkaCallback[Payload] | JobCallback[Payload]


class FireWithin(Struct, frozen=True):
    """Fire unless it is later than that."""

    fire_within_seconds: float


Misfire = Annotated[
    str | FireWithin, Meta(title="Misfire", description="The treatment of a late instant: `fire`, `skip`, or a bound.")
]


class Retry(Struct, frozen=True, kw_only=True):
    """How often an instant is attempted, and the pauses between: from `first_delay_seconds`, growing by `factor` up to
    `cap_seconds`."""

    attempts: int = 10
    first_delay_seconds: float = 5.0
    factor: float = 3.0
    cap_seconds: float = 3_600.0


class Timing(Struct, Generic[At], frozen=True, kw_only=True, omit_defaults=True):
    """A key, and exactly one of `schedules` (instants, up to 10,000), `cron` (five fields), `every` (seconds), and
    `anchor` with `offsets` (up to 1,000, such as `-90m`, `+1h30m` and `0s`)."""

    key: str | None = None
    instants: Sequence[At] | None = field(default=None, name="schedules")
    anchor: At | None = None
    offsets: Sequence[str] | None = None
    cron: str | None = None
    timezone: str | None = None
    every_seconds: int | None = field(default=None, name="every")
    starts_at: At | None = None
    ends_at: At | None = None
    exclude: Sequence[str] | None = None
    shift: str | None = None
    max_occurrences: int | None = None


class Request(Timing[At], Generic[At], frozen=True, kw_only=True):
    """The fields of a schedule but for its callback."""

    window_seconds: float = 0.0
    misfire: Misfire = "fire"
    retry: Retry = Retry()
    labels: Mapping[str, str] = {}


class ScheduleBody(Request[At], Generic[At, Payload], frozen=True, kw_only=True):
    """A schedule: exactly one of `schedules` (timestamps), `cron`, `every` (seconds) and `anchor`, with its `offsets`.

    Another `anchor` moves all instants that have not fired, and fires none a second time. A recurrence does not fire on
    the days of the calendars that `exclude` names; with `shift`, it fires on the `next` or `previous` other day.

    `starts_at` and `ends_at` bound a recurrence; `every` counts from `starts_at` or, without it, from the start of
    1970, so that its instants do not depend on when it was asked for. Unless `misfire` says otherwise, what comes late
    fires all the same.
    """

    callback: CallbackBody[Payload]


class Outcome(Struct, Generic[At], frozen=True, kw_only=True):
    """One attempt: when it was due, when it was made, by how much later, and how it ended. `job_id` is the job that it
    has started."""

    due: At
    at: At
    late_ms: int
    attempt: int
    result: str
    error: str = ""
    job_id: str | UnsetType = UNSET


class StoredSchedule(Timing[At], Generic[At, Payload], frozen=True, kw_only=True):
    """A schedule as it was asked for and as it is now. In a list without `schedules`, `next`, `skipped`, `outcomes`;
    in one of all namespaces, with `namespace`.

    `next` are up to 20 pending instants that are still ahead, with their delay within the window; `next_try_at` is when
    the first call that failed, planned or fired by hand, is tried again. `skipped`, in an answer to POST and PUT, are
    those that were past when it was made; `outcomes` the last 20 attempts. `updated_at` tells when the content was
    given. `redacted` says that the callback is shown without its payload, headers, key and the path of its URL, and
    outcomes without their errors, because the caller is a viewer.
    """

    key: str
    namespace: str | None = None
    window_seconds: float
    misfire: Misfire
    retry: Retry
    labels: Mapping[str, str]
    body: CallbackBody[Payload] = field(name="callback")
    state: str
    next: tuple[At, ...] | None = None
    next_try_at: At | None = None
    skipped: tuple[At, ...] | None = None
    outcomes: tuple[Outcome[At], ...] | None = None
    created_at: At
    updated_at: At
    redacted: bool

    __repr__ = Short.__repr__

    @property
    def callback(self) -> AnyCallback[Payload]:
        """The callback of each instant; a secret is not shown."""
        return self.body.data


class AnchorBody(Struct, Generic[At], frozen=True):
    """The new anchor of a schedule."""

    anchor: At


class MoveBody(Struct, frozen=True, kw_only=True):
    """A move of all schedules that have all these labels, such as `day:2026-12-01`, by an offset such as `+1d`."""

    labels: Sequence[str]
    by: str


class BackfillBody(Struct, Generic[At], frozen=True, kw_only=True):
    """Two past times. The instants between them, both included, fire now: at most 10,000."""

    since: At = field(name="from")
    until: At = field(name="to")


class Backfilled(Struct, frozen=True):
    """How many `instants` fire now, without those that a backfill has fired before."""

    instants: int


class MovedSchedules(Struct, frozen=True):
    """How many schedules have `moved`. Those without an anchor, finished ones, and those that would leave the years
    1970 to 2200, are `unmoved`."""

    moved: int
    unmoved: int


class LeftOut(Struct, Generic[At], frozen=True, kw_only=True):
    """An instant on a day of the calendar. It fires at `shifted_to`; `null`: not at all, nor do others of that day."""

    at: At
    calendar: str
    shifted_to: At | None


class SchedulePreview(Struct, Generic[At], frozen=True, omit_defaults=True):
    """The next instants of a schedule that is not made. `left_out` are those up to the last of them that its calendars
    leave out or shift."""

    next: tuple[At, ...]
    left_out: tuple[LeftOut[At], ...] | None = None


class CalendarBody(Struct, frozen=True, kw_only=True):
    """The days of a calendar: `dates` such as `2026-12-25` (up to 1,000), in an IANA `timezone`."""

    dates: Sequence[str]
    timezone: str = "UTC"


class StoredCalendar(CalendarBody, Generic[At], frozen=True, kw_only=True):
    """A calendar. Only a list of all namespaces says its `namespace`."""

    name: str
    namespace: str | UnsetType = UNSET
    updated_at: At


class Fired(Struct, Generic[At], frozen=True):
    """An instant that was fired by hand: `id` is the message id."""

    id: str
    due: At


class BulkResult(Result, frozen=True, kw_only=True):
    """The result of the item with this index: `status` is the answer that it would have got on its own."""

    key: str | None
    status: int
    error: ItemError | None = None

    @property
    def created(self) -> bool:
        """Whether it is new; one that was there with the same content is not, and is no error."""
        return self.status == HTTPStatus.CREATED


class ScheduleName(Struct, frozen=True, kw_only=True):
    """The schedule that started a job."""

    namespace: str
    key: str


class DueInstant(Struct, Generic[At], frozen=True, kw_only=True):
    """An instant of the schedule with this key. It fires at `at`: at `due`, or when it is tried again. `attempts` were
    refused. `kind` is `once`, `series` (of a recurrence), `offset` (from an anchor) or `asked` (fired by hand)."""

    namespace: str
    key: str
    due: At
    at: At
    attempts: int = 0
    kind: str = ""


class DueInstants(Struct, Generic[At], frozen=True, kw_only=True):
    """The instants that fire next as of `as_of`, the first one first: all that are due before `until`."""

    as_of: At
    until: At
    instants: tuple[DueInstant[At], ...]


class DeadLetter(Struct, Generic[At], frozen=True, kw_only=True):
    """An instant that was refused to the last attempt; `id` is its message id. `redacted` says that `error` is left
    out: the caller is a viewer."""

    id: str
    namespace: str = ""
    key: str
    due: At
    died_at: At
    attempts: int
    error: str
    redacted: bool = False


class WholeDeadLetter(DeadLetter[At], Generic[At, Payload], frozen=True, kw_only=True):
    """A dead letter with what a retry would do now: `null` where its schedule is gone, so that it can only be
    discarded."""

    body: CallbackBody[Payload] | None = field(name="callback")

    @property
    def callback(self) -> AnyCallback[Payload] | None:
        """The callback that a retry would make; `None` if the schedule is gone."""
        return None if self.body is None else self.body.data


class ErrorCount(Struct, Generic[At], frozen=True, kw_only=True):
    """How many of the last dead letters had this error, and when the last of these died."""

    error: str
    count: int
    last_died_at: At


class RetriedDeadLetter(Struct, frozen=True):
    """The dead letter that is tried again."""

    id: str
