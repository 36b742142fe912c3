"""The planner: cuts a job's audience into batches, a page at a time, and feeds while it cuts.

Planning can be done again from wherever it stopped, by anybody: what a plan is made of is fixed before the first cut,
batches are inserted in order and never changed, and the end is itself an entry. A planner that finds an entry taken
was overtaken; it reads the last one and goes on from there.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import assert_never

import structlog
from msgspec.structs import replace

from services.worker.jobs.cutting import FileCuts, PlannedBatch, TableCuts
from services.worker.jobs.dividing import Divider, ZoneCuts
from services.worker.jobs.grace import Grace
from services.worker.stage import Stage
from shared.audience import Audience
from shared.blobs import Blobs
from shared.domain.audience.audiences import table_name
from shared.domain.audience.ranges import DeviceList, KeyRange
from shared.domain.audience.sources import File, PushTable, Source
from shared.domain.errors import Denied, Hidden, Invalid, NotFound, Unavailable
from shared.domain.jobs.batches import Batch
from shared.domain.jobs.filling import check_filled
from shared.domain.jobs.jobs import PLAN, READ_FILE, SEND_DIRECT, Event, EventState, Job, Plan
from shared.domain.jobs.tasks import PlanJob
from shared.domain.jobs.templates import Template
from shared.flow.jobs.breaker import Breaker
from shared.flow.jobs.feed import Feed
from shared.flow.jobs.jobs import JobFlow
from shared.flow.jobs.kinds import JobKinds
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.runtime.settings import WorkerSettings
from shared.store import Store
from shared.store.jobs.batches import PlanEnd

log = structlog.get_logger(__name__)


class Planner(Stage[PlanJob]):
    """The stage behind `push.split`."""

    task = PlanJob

    def __init__(
        self,
        store: Store,
        audience: Audience,
        blobs: Blobs,
        kinds: JobKinds,
        feed: Feed,
        flow: JobFlow,
        breaker: Breaker,
        grace: Grace,
        clock: Clock,
        *,
        worker: WorkerSettings,
        max_record_bytes: int,
        max_file_bytes: int,
    ) -> None:
        self.in_flight = worker.plans_in_flight
        self._store = store
        self._audience = audience
        self._blobs = blobs
        self._table_cuts = TableCuts(audience, page_batches=worker.page_batches)
        self._file_cuts = FileCuts(store, blobs)
        divider = Divider(store, audience, blobs, self._file_cuts, step_rows=worker.divide_rows)
        self._zone_cuts = ZoneCuts(store, divider, page_batches=worker.page_batches)
        self._kinds = kinds
        self._feed = feed
        self._flow = flow
        self._breaker = breaker
        self._grace = grace
        self._clock = clock
        self._worker = worker
        self._max_record_bytes = max_record_bytes
        self._max_file_bytes = max_file_bytes
        self._stopping = False

    async def run(self, task: PlanJob) -> None:
        """Plan the job to its end, or until it is stopped. Raises `Unavailable`."""
        job = await self._store.jobs.get(task.job_id)
        if job is None or job.ended:
            return
        with structlog.contextvars.bound_contextvars(job_id=job.id):
            try:
                async with self._grace.give(job, stage=PLAN):
                    await self._plan(await self._begin(job))
            except Invalid as error:
                log.error("job cannot be planned", reason=error.reason)
                await self._stop(job, error)

    async def _stop(self, job: Job, error: Invalid) -> None:
        if not job.csv_path:
            await self._flow.stop(job.key, failure=error.reason, stage=SEND_DIRECT)
        elif error.field == "csvPath":
            await self._flow.stop_over_file(job, error.reason)
        else:
            await self._flow.stop(job.key, failure=error.reason, stage=READ_FILE)

    async def put_off(self, task: PlanJob) -> None:
        """Have the plan taken up again later, from wherever it stands then."""
        await self._feed.put_off(task)

    async def give_up(self, task: PlanJob, reason: str) -> None:
        """Stop a job that nobody can plan."""
        await self._flow.stop(task.job_id, failure=f"planning failed: {reason}", stage=PLAN)

    def stop(self) -> None:
        """End the plans in hand behind the page that they are at; they go on elsewhere."""
        self._stopping = True

    async def _begin(self, job: Job) -> Job:
        """The job with everything fixed that its plan is made of."""
        if job.plan.source is not None:
            return job
        templates = await self._templates(job)
        most = self._max_record_bytes
        await asyncio.to_thread(check_filled, templates, job.context, job.metadata, most=most, field="template")
        await self._kinds.of(job.service).prepare(job)
        source = await self._source(replace(job, plan=Plan(templates=templates)))
        stage = READ_FILE if isinstance(source, File) else PLAN
        events = [Event(stage, EventState.RUNNING, "starting", self._clock.now_ns())]
        begun = await self._store.jobs.begin_plan(job.key, source=source, templates=templates, events=events)
        return begun or await self._read_again(job)

    async def _source(self, job: Job) -> Source:
        """What the job reads: where its group is divided already, what was divided."""
        division = await self._store.divisions.get(job.file_plan_id) if job.divided else None
        if division is not None:
            return division.source
        if job.csv_path:
            return await self._file(job)
        return PushTable(await self._audience.highest(table_name(job.app_name, job.service)))

    async def _file(self, job: Job) -> File:
        """The version of the file that all jobs of the group read."""
        try:
            file = await self._blobs.stat(job.csv_path)
        except Hidden as error:
            # It could be seen when the job was posted.
            raise Denied(error.reason) from error
        except NotFound as error:
            raise Invalid(error.reason, field="csvPath") from error
        if file.size > self._max_file_bytes:
            raise Invalid(f"the file has {file.size:,} bytes, {self._max_file_bytes:,} are allowed", field="csvPath")
        user_type = await self._audience.user_type(table_name(job.app_name, job.service))
        plan = await self._store.files.begin(
            job.file_plan_id, file, cut_records=self._batch_size(job), user_type=user_type
        )
        return plan.file

    def _batch_size(self, job: Job) -> int:
        return min(self._worker.batch_size, self._kinds.of(job.service).fitting(job))

    async def _read_again(self, job: Job) -> Job:
        found = await self._store.jobs.get(job.key)
        if found is None:
            raise Invalid("the job is gone", field="job")
        return found

    async def _templates(self, job: Job) -> tuple[Template, ...]:
        templates = await self._store.templates.find_named(job.app_id, job.template_names)
        for name in {*job.template_names} - {template.name for template in templates}:
            raise Invalid(f"No templates were found with name {name}", field="template")
        return tuple(templates)

    async def _plan(self, job: Job) -> None:
        while not isinstance(last := await self._store.batches.last(job.key), PlanEnd):
            if not await self._plan_on(job, last):
                return
        unknown = await self._zone_cuts.count_unknown(job)
        events = self._ended(job, last.ordinal)
        await self._store.jobs.end_plan(job.key, end=last.ordinal, unknown=unknown, events=events)
        await self._breaker.look(job.key)
        await self._feed.feed_job(job.key)
        log.info("planned", batches=last.ordinal)

    def _ended(self, job: Job, batches: int) -> list[Event]:
        now = self._clock.now_ns()
        read = [Event(READ_FILE, EventState.SUCCESS, "finished", now)] if job.csv_path else []
        return [*read, Event(PLAN, EventState.SUCCESS, f"complete part {batches} of {batches}", now)]

    async def _plan_on(self, job: Job, last: Batch | None) -> bool:
        """Plan behind the last batch until the end, or until another planner is ahead; `False` once the job is
        stopped."""
        ordinal = 0 if last is None else last.ordinal + 1
        async with aclosing(self._pages(job, last)) as pages:
            async for parts in pages:
                if parts:
                    if not await self._store.batches.add_page(_batches(job.key, ordinal, parts)):
                        return True
                    ordinal += len(parts)
                    await fault("plan.after_page")
                    await self._feed.feed_job(job.key)
                await self._store.jobs.touch(job.key)
                if await self._end_if_stopped(job):
                    return False
                if self._stopping:
                    raise Unavailable("this process is stopping; the plan goes on elsewhere")
        await fault("plan.before_end")
        await self._store.batches.add_end(job.key, ordinal)
        return True

    def _pages(self, job: Job, last: Batch | None) -> AsyncGenerator[list[PlannedBatch]]:
        first = 0 if last is None else last.ordinal + 1
        # What a worker of an earlier version has begun to plan is gone on with in its way.
        if job.divided and (last is None or isinstance(last.range, DeviceList)):
            return self._zone_cuts.pages(job, first, self._batch_size(job))
        match job.plan.source:
            case PushTable(highest):
                keys = None if last is None else last.range
                assert keys is None or isinstance(keys, KeyRange)
                return self._table_cuts.pages(job, highest, keys, self._batch_size(job))
            case File():
                return self._file_cuts.pages(job.file_plan_id, first, zone=job.zone)
            case None:
                raise AssertionError("a plan is begun before it is cut")
            case source:
                assert_never(source)

    async def _end_if_stopped(self, job: Job) -> bool:
        standing = await self._store.jobs.get_standing(job.key)
        if standing is not None and not standing.stopped:
            return False
        await self._flow.drop_unsent(job.key)
        return True


def _batches(job_id: str, first: int, parts: Sequence[PlannedBatch]) -> list[Batch]:
    return [
        Batch(job_id=job_id, ordinal=ordinal, range=part.range, size=part.size, whole=part.whole)
        for ordinal, part in enumerate(parts, first)
    ]
