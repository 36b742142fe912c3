"""Push jobs to be made, jobs as they are stored, their previews, and the batches that they are sent in."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, field

from carillon.accounts import App
from carillon.messages import JobQueue, MessageCounts
from carillon.values import Instant, encode, nanoseconds, wall_clock
from carillon.wire import Short
from carillon.wire.clock import ScheduleName


class PushJob(Struct, frozen=True, kw_only=True):
    """A push job to be created. `template` is the name of a template, or a list of names: each user gets one of them.
    It starts at `starts_at`, or at once. Pushes that are not sent by `expires_at` are dropped.

    `name` is for people; by default it is that of the template. `service` is the push service: `apns`, `gcm`, or one
    that the deployment has added.

    The recipients are everybody, those that `filters` select by column name, or the users of the file at `csv_path`, as
    `uploads.put` gave it. `control_group` is the share of users who get nothing, at least 0 and less than 1.

    A `localized` job has one job for each time zone, which starts when its clocks show `starts_at`, a time without a
    zone. If a zone is past that time, `past_time_strategy` says what to do: `skip` the zone, or start a day later
    (unset: that).

    Raises:
        ValueError: there is no `template`, an instant has no time zone, a localized start has one, or the control
            group is no such share.
    """

    service: str
    template: str | Sequence[str] = ()
    filters: Mapping[str, str] = {}
    csv_path: str = ""
    control_group: float = 0.0
    context: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] = {}
    starts_at: datetime | None = None
    expires_at: datetime | None = None
    localized: bool = False
    past_time_strategy: Literal["", "skip", "nextDay"] = ""
    name: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        if not self.template:
            raise ValueError('a push job needs a template: template="welcome", or a list of names')
        # As JSON, what is no number would be null, and no user would be held out.
        if not 0 <= self.control_group < 1:
            raise ValueError(f"control_group is at least 0 and less than 1, not {self.control_group!r}")
        self._times()

    def query(self) -> Mapping[str, str]:
        """The query beside the body."""
        return {"template": join_names(self.template)}

    def encoded(self) -> bytes:
        """The body of a request."""
        given = {"service": self.service, "filters": self.filters, "context": self.context, "metadata": self.metadata}
        chosen = {
            "id": self.id,
            "name": self.name,
            "csvPath": self.csv_path,
            "controlGroup": self.control_group,
            "localized": self.localized,
            "pastTimeStrategy": self.past_time_strategy,
        }
        return encode(given | self._times() | {name: value for name, value in chosen.items() if value})

    def _times(self) -> dict[str, int]:
        start = self.starts_at
        if start is not None and self.localized:
            start = wall_clock(start, "starts_at")
        return {
            "startsAt": nanoseconds(start, "starts_at"),
            "expiresAt": nanoseconds(self.expires_at, "expires_at"),
        }


def join_names(names: str | Sequence[str]) -> str:
    """One name or several, as the API takes them."""
    return names if isinstance(names, str) else ",".join(names)


class ZoneStart(Struct, frozen=True, kw_only=True, rename="camel"):
    """The job of one zone of a localized job, and when it starts."""

    zone: str
    job_id: str
    starts_at_ns: int = field(name="startsAt")

    starts_at = Instant("When it starts.")


class EventDoer(Struct, frozen=True, kw_only=True):
    """The `user` or `token` that did something to a job, or `system`, Carillon by itself."""

    kind: str
    name: str


class JobEvent(Struct, frozen=True, kw_only=True, rename="camel"):
    """A step of a stage, and who did it."""

    message: str
    state: str
    created_at_ns: int = field(name="createdAt")
    by: EventDoer

    created_at = Instant("When it happened.")


class JobStage(Struct, frozen=True, kw_only=True):
    """A stage of a job, with what happened in it."""

    name: str
    events: tuple[JobEvent, ...]


class StoredJob(Short, frozen=True, kw_only=True, rename="camel"):
    """A push job and its progress: `completed_tokens` of `total_tokens` devices, which are `sent`, `failed`, `skipped`
    or `held_out`; `unknown` counts users of a file who have no device. `rate` is in devices a second. `state` is
    `scheduled`, `running`, `paused`, `circuitbreak`, `stopped`, `failed`, `expired` or `completed`. A job is `failed`
    that Carillon stopped, and `expired` if its `expires_at` came before all was sent; `failure` then says why. `name`
    is that of its maker, or the template's; `kind` is `push`, `mail`, `sms`, or that of an account for other
    recipients; `states` counts the zones of a `grouped` one. `status` is `paused`, `circuitbreak`, `stopped` (a failed
    job too) or empty. The `stages` tell what happened; in lists they and the `context` are left empty.

    The jobs of a localized push have its `group_id`, and a `zone` each. `zones`, all of them from west to east, are
    only in the answer to start, as are `warnings` of probable mistakes. `control_group_csv_path` is the file of those
    who were held out, once the job is completed. Jobs that send by a provider account have its `credential_id`; single
    ones have their `options`, the counts of their `messages`, and what is ahead of them (`queue`). `redacted` says that
    context, metadata, the paths of files and what went wrong are left out: the caller is a viewer. `schedule` is the
    one that started the job, if one did.
    """

    id: str
    app_id: str
    group_id: str = field(name="jobGroupId")
    service: str
    template_name: str
    status: str
    total_batches: int
    completed_batches: int
    total_tokens: int
    completed_tokens: int
    sent: int
    failed: int
    skipped: int
    held_out: int
    unknown: int
    rate: float
    reasons: dict[str, int]
    locales: dict[str, int]
    feedbacks: dict[str, int]
    failure: str
    filters: dict[str, str]
    csv_path: str
    control_group: float
    control_group_csv_path: str
    context: dict[str, Any]
    metadata: dict[str, Any]
    localized: bool
    past_time_strategy: str
    zone: str
    zones: tuple[ZoneStart, ...]
    created_by: str
    starts_at_ns: int = field(name="startsAt")
    expires_at_ns: int = field(name="expiresAt")
    estimated_end_ns: int = field(name="estimatedEnd")
    completed_at_ns: int = field(name="completedAt")
    created_at_ns: int = field(name="createdAt")
    updated_at_ns: int = field(name="updatedAt")
    status_events: tuple[JobStage, ...] | None = None
    app: App | None = None
    state: str
    name: str
    kind: str
    states: dict[str, int] = field(default_factory=dict)
    credential_id: str = ""
    schedule: ScheduleName | None = None
    options: dict[str, Any] | None = None
    messages: MessageCounts | None = None
    queue: JobQueue | None = None
    warnings: tuple[str, ...] = ()
    redacted: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing more is sent. A job with messages may be retried."""
        return self.state in {"completed", "stopped", "failed", "expired"}

    starts_at = Instant("When it was to start; `None`: at once.")
    expires_at = Instant("When what is left of it is dropped.")
    estimated_end = Instant("When it will be done at the rate of now; `None` where that cannot be told.")
    completed_at = Instant("When it was done; `None` until then.")
    created_at = Instant("When it was made.")
    updated_at = Instant("When its status changed last.")

    @property
    def stages(self) -> tuple[JobStage, ...]:
        """The events of each stage so far."""
        return self.status_events or ()


class _View(Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a preview."""


class ZoneCount(_View, frozen=True):
    """The devices with one `tz`, as the push table has it."""

    tz: str | None
    devices: int


class LocaleCount(_View, frozen=True):
    """The devices with one `locale`, as the push table has it."""

    locale: str | None
    devices: int


class AudienceCount(_View, frozen=True):
    """The recipients of the job. `devices` and `users` are those that were counted in the time there was; `exact` says
    that they are all, else the estimates tell about how many there are. Those `without_token` would be skipped. In a
    file, `unknown` users have no device and `repeated` rows repeat an earlier user. The control group holds out
    about `held_out_users` of the counted users."""

    exact: bool
    devices: int
    users: int
    estimated_devices: int | None
    estimated_users: int | None
    without_token: int
    unknown: int
    repeated: int
    held_out_users: int
    zones: tuple[ZoneCount, ...]
    locales: tuple[LocaleCount, ...]


class ZonePreview(_View, frozen=True):
    """A zone of a localized job: its offset, or `rest` for devices without a readable one, and the devices counted
    there; `None` where the audience is. If the count is exact, there are only zones with devices."""

    zone: str
    devices: int | None
    starts_at_ns: int = field(name="startsAt")

    starts_at = Instant("When its job would start.")


class Sample(_View, frozen=True):
    """The record that a template makes for a made-up device; `None` if it cannot be made (`failure` says why) or is too
    long to be shown. `devices` of the counted ones have its locale."""

    template_name: str
    locale: str
    devices: int
    bytes: int
    record: dict[str, Any] | None
    failure: str


class Notice(_View, frozen=True):
    """Something that is allowed but probably a mistake: `code` stays the same, `message` is for people."""

    code: str
    message: str


class QueuePreview(_View, frozen=True):
    """The queue ahead of the job in its credential: running `jobs` with unsent `messages`. `starts_in` is in seconds,
    `None` if unknown."""

    jobs: int
    messages: int
    starts_in: float | None


class MessageSample(_View, frozen=True):
    """A message by the template of one locale. It has the tag if recipients have values of their own, as in
    `{{name}}`. `content` is `None` if it is too long to be shown."""

    locale: str
    bytes: int
    content: dict[str, Any] | None


class MessagesPreview(Short, _View, frozen=True):
    """The messages that a job with a credential would send. `recipients` counts those that would be called;
    unless that is `exact`, the estimate tells about how many there are in all. `malformed` and `suppressed` ones would
    never be called, nor those whose message is `unrendered`, empty or too long; `repeated` rows get no message. With
    `unfilled_tags` the job would be stopped. `samples` are of the first 20 locales. `queue` and `estimated_end` are
    estimates at the rate that the credential has now."""

    exact: bool
    recipients: int
    estimated_recipients: int | None
    malformed: int
    suppressed: int
    repeated: int
    columns: tuple[str, ...]
    unfilled_tags: tuple[str, ...]
    queue: QueuePreview
    estimated_end_ns: int = field(name="estimatedEnd")
    unrendered: int = 0
    samples: tuple[MessageSample, ...] = ()

    estimated_end = Instant("When the last message would leave, as far as anybody can tell.")


class JobPreview(Short, frozen=True, kw_only=True, rename="camel"):
    """The effect of a job. `audience` is `None` for a file over which the job would fail, as a warning tells;
    `file_bytes` if there is no file. A job with a credential has `messages` in place of records."""

    topic: str
    audience: AudienceCount | None
    file_bytes: int | None
    zones: tuple[ZonePreview, ...]
    samples: tuple[Sample, ...]
    largest_record_bytes: int
    max_record_bytes: int
    warnings: tuple[Notice, ...]
    messages: MessagesPreview | None = None


class Batch(Short, frozen=True, kw_only=True, rename="camel"):
    """A part of a job's audience, sent as one. It counts devices: `planned` ones were `sent`, `failed` (for `reasons`),
    `skipped`, `held_out`; `unknown` users of a file have none."""

    ordinal: int
    state: str
    zone: str = ""
    planned: int
    sent: int = 0
    failed: int = 0
    skipped: int = 0
    held_out: int = 0
    unknown: int = 0
    attempts: int = 0
    error: str = ""
    reasons: Mapping[str, int] = {}
    changed_at: datetime | None = None


class RatePoint(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many devices a second a job sent to from `at` on, until the next point."""

    at: datetime
    per_second: float


class Rate(Short, frozen=True, kw_only=True, rename="camel"):
    """How fast a job was, in points of like length."""

    points: tuple[RatePoint, ...]


class Samples(Struct, frozen=True, kw_only=True, rename="camel"):
    """The records that the templates of a job make for made-up devices; larger ones than `max_record_bytes` are not
    sent."""

    samples: tuple[Sample, ...]
    max_record_bytes: int
