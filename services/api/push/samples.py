"""`GET /apps/{appId}/jobs/{jobId}/samples`: the records of a job that is there, rendered anew for made-up devices."""

import asyncio
from http import HTTPStatus

from litestar import Response
from litestar.params import FromPath
from msgspec import Struct
from msgspec.structs import replace

from services.api.http import wire
from services.api.http.rights import OPERATE_APP
from services.api.http.routes import Resource, Route
from services.api.jobs.jobs import JOB, job_of
from services.api.push.preview_view import SampleView, sample_view
from shared.domain.audience.counts import Counted
from shared.domain.errors import Conflict
from shared.domain.instants import from_ns
from shared.domain.jobs.jobs import Job, Plan
from shared.domain.push import preview
from shared.domain.push.preview import SHOWN_SAMPLES
from shared.domain.push.records import RecordRules
from shared.runtime.clock import Clock
from shared.store import Store


class SamplesView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The records of a job as in a preview, what most devices got first. `devices` counts those that were sent, once
    the job has ended."""

    samples: list[SampleView]
    max_record_bytes: int


class SamplesResource(Resource):
    """The route of samples."""

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
        return wire.answer(await asyncio.to_thread(self._describe, job))

    def _describe(self, job: Job) -> SamplesView:
        leaves_at = from_ns(max(self._clock.now_ns(), job.starts_at))
        used = preview.uses(job, {str(locale): devices for locale, devices in job.locales.items()})
        found = preview.samples(job, used, Counted(), self._rules, leaves_at)[:SHOWN_SAMPLES]
        return SamplesView(
            samples=[sample_view(sample) for sample in found], max_record_bytes=self._rules.max_record_bytes
        )
