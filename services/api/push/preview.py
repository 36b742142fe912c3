"""`POST /apps/{appId}/jobs/preview`: the effect of a job without any trace; and `GET …/samples`: the records of a
stored job, rendered anew.

A preview takes what POST of a job takes. `null` is what cannot be known.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Annotated, Any
from weakref import WeakValueDictionary

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct
from msgspec.structs import replace

from services.api.accounts.apps import app_of
from services.api.http import bodies, paging
from services.api.http.acts import UNRECORDED
from services.api.http.identity import caller_of
from services.api.http.rights import OPERATE_APP
from services.api.http.routes import Resource, Route
from services.api.jobs import job_body
from services.api.jobs.job_body import AccountPreview, JobBody
from services.api.jobs.job_draft import FileCounting, JobDraft, JobDrafts
from services.api.jobs.jobs import JOB, JOBS, TEMPLATE, job_of
from shared.accounts.rules.apps import App, check_not_deleting
from shared.audience.rules.audiences import Counted
from shared.core.errors import Conflict, Invalid, Unavailable
from shared.core.instants import from_ns
from shared.drivers.blobs import Blobs
from shared.drivers.postgres import Audience
from shared.jobs.rules.groups import Group, Notice, of_push, zone_rules
from shared.jobs.rules.jobs import Job, Plan
from shared.push.rules import preview
from shared.push.rules import preview as notices
from shared.push.rules.choices import rounded_up
from shared.push.rules.preview import SHOWN_SAMPLES, Sample, most
from shared.push.rules.records import RecordRules, topic_name
from shared.runtime.clock import Clock
from shared.store import Store

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
    repeated: Annotated[int, Meta(description="Counted rows of a file that repeat an earlier user.")]
    held_out_users: Annotated[int, Meta(description="Estimated number of counted users in the control group.")]
    zones: Annotated[list[ZoneCount], Meta(description=f"The {LISTED} most frequent ones.")]
    locales: Annotated[list[LocaleCount], Meta(description=f"The {LISTED} most frequent ones.")]


class ZoneStart(View, frozen=True):
    """A zone of a localized job, an offset or `rest` (all whose `tz` is missing or unreadable), its start in
    nanoseconds since the epoch, and the counted devices; `null` where the audience is."""

    zone: str
    starts_at: int
    devices: int | None


class SampleView(View, frozen=True):
    """The record that a template makes for a made-up device, as it would be on Kafka; `null` if it cannot be made
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
    return SampleView(
        template_name=sample.template_name,
        locale=sample.locale,
        devices=sample.devices,
        bytes=sample.size,
        record=msgspec.json.decode(sample.record) if sample.record else None,
        failure=sample.failure,
    )


AT_ONCE = 3


class PreviewRules(Struct, frozen=True, kw_only=True):
    """A deployment's settings for jobs: their topics, their records, which way zones start, and how long an audience is
    counted."""

    topic_template: str
    records: RecordRules
    published_sign: bool
    seconds: float


class PreviewResource(Resource):
    def __init__(
        self, store: Store, audience: Audience, blobs: Blobs, drafts: JobDrafts, clock: Clock, rules: PreviewRules
    ) -> None:
        self._store = store
        self._audience = audience
        self._blobs = blobs
        self._files = FileCounting(audience, blobs)
        self._drafts = drafts
        self._clock = clock
        self._rules = rules
        self._permits = asyncio.Semaphore(AT_ONCE)
        # As long as a request of the namespace holds its lock or waits for it.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @Route(
        "POST", JOBS + "/preview", summary="Tell who would get a job and what they would get, and store nothing.",
        act=UNRECORDED, who=OPERATE_APP,
        body=JobBody, answers={HTTPStatus.OK: JobPreview},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), parameters=(TEMPLATE,),
    )  # fmt: skip
    async def preview_job(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        app = await app_of(self._store, app_id)
        names = job_body.read_names(paging.first(request, "template"))
        body = self._drafts.read_body(await request.body())
        check_not_deleting(app, app.id)
        async with self._permit(caller_of(request).namespace):
            if body.credential:
                return bodies.answer(await self._foresee(app, names, body))
            draft = await self._draft(app, names, body)
            group = self._drafts.group(draft.job) if draft.job.localized else None
            draft = draft if group is None else replace(draft, job=group.job)
            counted, about = await self._count(draft)
            # Templates can be large, and so can what is made of them.
            told = await asyncio.to_thread(self._describe, draft, group, counted, about)
        return bodies.answer(told)

    @asynccontextmanager
    async def _permit(self, namespace: str) -> AsyncIterator[None]:
        """Raises `Unavailable` if this namespace does not get its turn within the time for counting an audience."""
        turn = self._turns.setdefault(namespace, asyncio.Lock())
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(self._rules.seconds):
                    await held.enter_async_context(turn)
                    await held.enter_async_context(self._permits)
            except TimeoutError:
                raise Unavailable(f"{AT_ONCE} previews are being made already, or one of this caller") from None
            yield

    async def _foresee(self, app: App, names: tuple[str, ...], body: JobBody) -> JobPreview:
        foreseen = await self._drafts.foresee(app, names, body, seconds=self._rules.seconds)
        file = await self._blobs.stat(body.csv_path) if body.csv_path else None
        return account_preview_view(
            foreseen.preview,
            file_bytes=None if file is None else file.size,
            notices=[*([notices.of_flaw(foreseen.flaw)] if foreseen.flaw else ()), *foreseen.notices],
        )

    async def _draft(self, app: App, names: tuple[str, ...], body: JobBody) -> JobDraft:
        """The job as POST would take it and workers render it, with the nil UUID. Raises `Invalid` if POST would refuse
        it."""
        draft = await self._drafts.draft(app, names, body, created_by="", key=None)
        return replace(draft, job=replace(draft.with_templates, id=bodies.NIL_UUID, group_id=bodies.NIL_UUID))

    async def _count(self, draft: JobDraft) -> tuple[Counted | None, list[Notice]]:
        """The audience and remarks about it; none if a job would fail over its file."""
        job, seconds = draft.job, self._rules.seconds
        table = job.table
        if draft.file is None:
            counted = await self._audience.count(table, job.filters, seconds=seconds)
        else:
            try:
                counted = await self._files.count(table, draft.file, seconds=seconds)
            except Invalid as flaw:
                return None, [notices.of_flaw(flaw)]
        return counted, [*notices.of_audience(job, counted)]

    def _describe(
        self, draft: JobDraft, group: Group | None, counted: Counted | None, about: list[Notice]
    ) -> JobPreview:
        zones = [] if group is None else [(each.zone, each.starts_at) for each in group.zones]
        job, rules, now = draft.job, self._rules, self._clock.now_ns()
        used = preview.uses(job, (counted or Counted()).locales)
        leaves_at = from_ns(max(now, job.starts_at))
        samples = preview.samples(job, used, counted or Counted(), rules.records, leaves_at)
        about = [*about, *notices.of_templates(job, used, samples, rules.records.max_record_bytes)]
        about += of_push(job, zones, counted, published_sign=rules.published_sign, now_ns=now)
        return preview_view(
            topic=topic_name(rules.topic_template, job.app_name, job.service),
            counted=counted,
            control_group=job.control_group,
            file_bytes=None if draft.file is None else draft.file.size,
            zones=_zone_starts(job, zones, counted),
            samples=samples,
            rules=rules.records,
            notices=about,
        )


def _zone_starts(job: Job, zones: list[tuple[str, int]], counted: Counted | None) -> list[ZoneStart]:
    if counted is None or not zones:
        return [ZoneStart(zone=zone, starts_at=start, devices=None) for zone, start in zones]
    devices = counted.by_zone(zone_rules(job))
    return [
        ZoneStart(zone=zone, starts_at=start, devices=devices.get(zone, 0))
        for zone, start in zones
        if zone in devices or not counted.exact
    ]


class SamplesView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The records of a job as in a preview, what most devices got first. `devices` counts those that were sent, once
    the job has ended."""

    samples: list[SampleView]
    max_record_bytes: int


class SamplesResource(Resource):
    def __init__(self, store: Store, clock: Clock, rules: RecordRules) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules

    @Route(
        "GET", JOB + "/samples",
        summary="Show what a job's records are like, for devices that are made up.",
        who=OPERATE_APP, answers={HTTPStatus.OK: SamplesView}, problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def get_job_samples(self, app_id: FromPath[str], job_id: FromPath[str]) -> Response[bytes]:
        _, seen = await job_of(self._store, app_id, job_id)
        if seen.credential_id:
            raise Conflict("this job sends by an account of a provider, so it has no records")
        job = await self._store.jobs.get(seen.key) or seen
        if not job.plan.templates:
            found = await self._store.templates.find_named(job.app_id, job.template_names)
            job = replace(job, plan=Plan(templates=tuple(found)))
        # Templates can be large, and so can what is made of them.
        return bodies.answer(await asyncio.to_thread(self._describe, job))

    def _describe(self, job: Job) -> SamplesView:
        leaves_at = from_ns(max(self._clock.now_ns(), job.starts_at))
        used = preview.uses(job, {str(locale): devices for locale, devices in job.locales.items()})
        found = preview.samples(job, used, Counted(), self._rules, leaves_at)[:SHOWN_SAMPLES]
        return SamplesView(
            samples=[sample_view(sample) for sample in found], max_record_bytes=self._rules.max_record_bytes
        )
