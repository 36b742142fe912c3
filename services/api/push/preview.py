"""`POST /apps/{appId}/jobs/preview`: what a job would do. It takes what POST of a job takes and makes the same checks;
nothing is stored, and nothing leaves but the answer.

A preview keeps the push database busy for as long as it may count, so only a few are made at a time in a process, and
one of a namespace: whoever asks for more waits for their own, and not in the place of others.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any
from weakref import WeakValueDictionary

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct
from msgspec.structs import replace

from services.api.accounts.apps import app_of
from services.api.http import paging, wire
from services.api.http.acts import UNRECORDED
from services.api.http.identity import caller_of
from services.api.http.rights import OPERATE_APP
from services.api.http.routes import Resource, Route
from services.api.jobs import job_body
from services.api.jobs.file_counting import FileCounting
from services.api.jobs.job_body import JobBody
from services.api.jobs.job_draft import JobDraft, JobDrafts
from services.api.jobs.job_parameters import TEMPLATE
from services.api.jobs.jobs import JOBS
from services.api.push.preview_view import JobPreview, ZoneStart, account_preview_view, preview_view
from shared.audience import Audience
from shared.blobs import Blobs
from shared.domain.accounts.apps import App, check_not_deleting
from shared.domain.audience.counts import Counted
from shared.domain.errors import Invalid, Unavailable
from shared.domain.instants import from_ns
from shared.domain.jobs.groups import Group, zone_rules
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.notices import Notice, of_push
from shared.domain.push import notices, preview
from shared.domain.push.records import RecordRules
from shared.domain.push.topics import topic_name
from shared.runtime.clock import Clock
from shared.store import Store

AT_ONCE = 3


class PreviewRules(Struct, frozen=True, kw_only=True):
    """A deployment's settings for jobs: their topics, their records, which way zones start, and how long an audience is
    counted."""

    topic_template: str
    records: RecordRules
    published_sign: bool
    seconds: float


class PreviewResource(Resource):
    """The route of previews."""

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
        # For as long as somebody of the namespace holds its lock or waits for it.
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
                return wire.answer(await self._foresee(app, names, body))
            draft = await self._draft(app, names, body)
            group = self._drafts.group(draft.job) if draft.job.localized else None
            draft = draft if group is None else replace(draft, job=group.job)
            counted, about = await self._count(draft)
            # Templates can be large, and so can what is made of them.
            told = await asyncio.to_thread(self._describe, draft, group, counted, about)
        return wire.answer(told)

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
        return replace(draft, job=replace(draft.with_templates, id=wire.NIL_UUID, group_id=wire.NIL_UUID))

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
