"""A preview as clients see it. `null` is what cannot be known: an estimate of what nobody looked at, a NULL column."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from services.api.jobs.account_jobs import AccountPreview
from shared.domain.audience.counts import Counted
from shared.domain.jobs.notices import Notice
from shared.domain.push.control_groups import rounded_up
from shared.domain.push.preview import SHOWN_SAMPLES, Sample, most
from shared.domain.push.records import RecordRules

LISTED = 100
SHOWN_WARNINGS = 100


class View(Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of a preview's parts."""


class ZoneCount(View, frozen=True):
    """The devices with one `tz`, as the push table has it."""

    tz: str | None
    devices: int


class LocaleCount(View, frozen=True):
    """The devices with one `locale`, as the push table has it."""

    locale: str | None
    devices: int


class AudienceView(View, frozen=True):
    """The audience of the job, as far as it was counted in time. `exact` says that this is all; otherwise the
    estimates say about how many there are: a table's rest is taken to be like what was counted, and so is a file's,
    byte for byte. Users of a table beyond a million are counted to within 0.2 %.
    """

    exact: bool
    devices: int
    users: int
    estimated_devices: int | None
    estimated_users: int | None
    without_token: Annotated[int, Meta(description="Counted devices that would be skipped.")]
    unknown: Annotated[int, Meta(description="Counted users of a file who have no device.")]
    repeated: Annotated[int, Meta(description="Counted rows of a file whose user stands in it before.")]
    held_out_users: Annotated[int, Meta(description="About so many of the counted users the control group holds out.")]
    zones: Annotated[list[ZoneCount], Meta(description=f"The {LISTED} most frequent ones.")]
    locales: Annotated[list[LocaleCount], Meta(description=f"The {LISTED} most frequent ones.")]


class ZoneStart(View, frozen=True):
    """A zone of a localized job, an offset or `rest` (all whose `tz` is missing or unreadable), its start in
    nanoseconds since the epoch, and the counted devices; `null` where the audience is."""

    zone: str
    starts_at: int
    devices: int | None


class SampleView(View, frozen=True):
    """The record that a template makes for a made-up device, as it would stand on Kafka; `null` if it cannot be made
    (`failure` says why) or is too long to be shown. `devices` is how many of the counted ones have its locale."""

    template_name: str
    locale: str
    devices: int
    bytes: int
    record: dict[str, Any] | None
    failure: str


class NoticeView(View, frozen=True):
    """Something that is allowed but probably a mistake. The code stays; the message is for people."""

    code: str
    message: str


class JobPreview(View, frozen=True):
    """The effect of a job. `audience` is `null` for a file over which the job would fail, as a warning tells, and
    `fileBytes` if there is no file. A job with a credential has `messages` in place of a topic and records.
    `messages` is `null` for other jobs, and if the job would fail over its file."""

    topic: str
    audience: AudienceView | None
    file_bytes: int | None
    zones: Annotated[
        list[ZoneStart],
        Meta(description="The zones of a localized job. If the count is exact, only those with devices."),
    ]
    samples: Annotated[list[SampleView], Meta(description=f"At most {SHOWN_SAMPLES}, most devices first.")]
    largest_record_bytes: int
    max_record_bytes: Annotated[int, Meta(description="A larger record would not be sent.")]
    warnings: Annotated[list[NoticeView], Meta(description=f"At most {SHOWN_WARNINGS}.")]
    messages: AccountPreview | None = None


def audience_view(counted: Counted, control_group: float) -> AudienceView:
    """The counted audience, of which a share is held out."""
    return AudienceView(
        exact=counted.exact,
        devices=counted.devices,
        users=counted.users,
        estimated_devices=counted.estimate(counted.devices),
        estimated_users=counted.estimate(counted.users),
        without_token=counted.without_token,
        unknown=counted.unknown,
        repeated=counted.repeated,
        held_out_users=rounded_up(control_group, counted.users),
        zones=[ZoneCount(tz=tz, devices=devices) for tz, devices in most(counted.zones, LISTED)],
        locales=[LocaleCount(locale=locale, devices=devices) for locale, devices in most(counted.locales, LISTED)],
    )


def preview_view(
    *,
    topic: str,
    counted: Counted | None,
    control_group: float,
    file_bytes: int | None,
    zones: list[ZoneStart],
    samples: list[Sample],
    rules: RecordRules,
    notices: list[Notice],
) -> JobPreview:
    """All of it."""
    return JobPreview(
        topic=topic,
        audience=None if counted is None else audience_view(counted, control_group),
        file_bytes=file_bytes,
        zones=zones,
        samples=[sample_view(sample) for sample in samples[:SHOWN_SAMPLES]],
        largest_record_bytes=max((sample.size for sample in samples), default=0),
        max_record_bytes=rules.max_record_bytes,
        warnings=_show_notices(notices),
    )


def account_preview_view(
    messages: AccountPreview | None, *, file_bytes: int | None, notices: list[Notice]
) -> JobPreview:
    """That of a job with a credential."""
    return JobPreview(
        topic="",
        audience=None,
        file_bytes=file_bytes,
        zones=[],
        samples=[],
        largest_record_bytes=0,
        max_record_bytes=0,
        warnings=_show_notices(notices),
        messages=messages,
    )


def _show_notices(notices: list[Notice]) -> list[NoticeView]:
    return [NoticeView(code=notice.code, message=notice.message) for notice in notices[:SHOWN_WARNINGS]]


def sample_view(sample: Sample) -> SampleView:
    """A sample as it is shown."""
    return SampleView(
        template_name=sample.template_name,
        locale=sample.locale,
        devices=sample.devices,
        bytes=sample.size,
        record=msgspec.json.decode(sample.record) if sample.record else None,
        failure=sample.failure,
    )
