"""The preview of a job that is not made yet. `None` is a value that cannot be known: an estimate that nobody made, a
column without a value."""

from typing import Any

from msgspec import Struct, field

from carillon.displays import Short
from carillon.instants import Instant


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
    file, `unknown` users have no device and `repeated` rows name a user who stands before. The control group holds out
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
    `None` where nobody can tell."""

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
    """The messages that a job with a credential would send. So many `recipients` were counted who would be called;
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
