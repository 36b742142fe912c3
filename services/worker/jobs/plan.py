"""The planner: cuts a job's audience into batches, a page at a time, and feeds while it cuts.

The inputs of a plan (templates, the version of its source) are fixed before the first cut. A job with more recipients
than allowed is stopped.
"""

from collections.abc import Sequence
from contextlib import aclosing

import structlog
from msgspec.structs import replace

from services.worker.consumer import Stage
from services.worker.jobs.cutting import PlannedBatch
from services.worker.jobs.dividing import Cuts
from services.worker.jobs.finish import Grace
from shared.audience.rules.audiences import File, PushTable, Source
from shared.audience.rules.columns import NamedColumns
from shared.core.errors import Denied, Hidden, Invalid, NotFound, Unavailable
from shared.drivers.blobs import Blobs
from shared.drivers.postgres import Audience
from shared.drivers.postgres.recipient_tables import RecipientTables
from shared.jobs.feed import Feed
from shared.jobs.finish import Breaker
from shared.jobs.kinds import JobKinds
from shared.jobs.moves import JobFlow
from shared.jobs.rules.batches import Batch
from shared.jobs.rules.events import PLAN, READ_FILE, SEND_DIRECT, Event, EventState
from shared.jobs.rules.jobs import Job, Plan, PlanJob
from shared.jobs.rules.templates import Template
from shared.jobs.store_batches import PlanEnd
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.store import Store

log = structlog.get_logger(__name__)


class RecipientLimit:
    """Counts the recipients of a plan that has `planned` already."""

    def __init__(self, named: NamedColumns | None, planned: int) -> None:
        self._named = named
        self._planned = planned

    def add(self, page: Sequence[PlannedBatch]) -> None:
        """Count one more page. Raises `Invalid` if there are too many now."""
        self._planned += sum(batch.size for batch in page)
        if self._named is not None:
            self._named.check(self._planned)


async def count_planned(store: Store, job: Job) -> int:
    totals = await store.batch_sums.totals([job.key])
    return totals[job.key].planned if job.key in totals else 0


class PlanInputs:
    """Fixes the inputs of a job's plan, once."""

    def __init__(
        self,
        store: Store,
        audience: Audience,
        blobs: Blobs,
        kinds: JobKinds,
        clock: Clock,
        *,
        batch_size: int,
        max_file_bytes: int,
    ) -> None:
        self._store = store
        self._audience = audience
        self._recipients = RecipientTables.beside(audience)
        self._blobs = blobs
        self._kinds = kinds
        self._clock = clock
        self._batch_size = batch_size
        self._max_file_bytes = max_file_bytes

    async def fix(self, job: Job) -> Job:
        if job.plan.source is not None:
            return job
        templates = await self._templates(job)
        filled = replace(job, plan=Plan(templates=templates))
        await self._kinds.of(job.service).prepare(filled)
        source = await self._source(filled)
        stage = READ_FILE if isinstance(source, File) else PLAN
        events = [Event(stage, EventState.RUNNING, "starting", self._clock.now_ns())]
        begun = await self._store.jobs.begin_plan(job.key, source=source, templates=templates, events=events)
        begun = begun or await self._store.jobs.get(job.key)
        if begun is None:
            raise Invalid("the job is gone", field="job")
        return begun

    async def _source(self, job: Job) -> Source:
        """The source that the job reads. If its group is divided already, it is the one that the division has read."""
        division = await self._store.divisions.get(job.file_plan_id) if job.divided else None
        if division is not None:
            return division.source
        if job.csv_path:
            return await self._file(job)
        tables = self._audience if self.named_columns(job) is None else self._recipients
        return PushTable(await tables.highest(job.table))

    async def _file(self, job: Job) -> File:
        """The version of the file that all jobs of the group read."""
        try:
            file = await self._blobs.stat(job.csv_path)
        except Hidden as error:
            # The file was visible when the job was posted, so the access was withdrawn.
            raise Denied(error.reason) from error
        except NotFound as error:
            raise Invalid(error.reason, field="csvPath") from error
        if file.size > self._max_file_bytes:
            raise Invalid(f"the file has {file.size:,} bytes, {self._max_file_bytes:,} are allowed", field="csvPath")
        user_type = "" if self.named_columns(job) else await self._audience.user_type(job.table)
        plan = await self._store.files.begin(
            job.file_plan_id, file, cut_records=self.batch_size(job), user_type=user_type
        )
        return plan.file

    def batch_size(self, job: Job) -> int:
        return self._kinds.of(job.service).batch_size(job, self._batch_size)

    def named_columns(self, job: Job) -> NamedColumns | None:
        return self._kinds.of(job.service).named_columns(job)

    async def _templates(self, job: Job) -> tuple[Template, ...]:
        templates = await self._store.templates.find_named(job.app_id, job.template_names)
        for name in {*job.template_names} - {template.name for template in templates}:
            raise Invalid(f"No templates were found with name {name}", field="template")
        return tuple(templates)


class Planner(Stage[PlanJob]):
    """The stage behind `push.split`."""

    task = PlanJob

    def __init__(
        self,
        store: Store,
        inputs: PlanInputs,
        cuts: Cuts,
        feed: Feed,
        flow: JobFlow,
        breaker: Breaker,
        grace: Grace,
        clock: Clock,
        *,
        in_flight: int,
    ) -> None:
        self.in_flight = in_flight
        self._store = store
        self._inputs = inputs
        self._cuts = cuts
        self._feed = feed
        self._flow = flow
        self._breaker = breaker
        self._grace = grace
        self._clock = clock
        self._stopping = False

    async def run(self, task: PlanJob) -> None:
        job = await self._store.jobs.get(task.job_id)
        if job is None or job.ended:
            return
        with structlog.contextvars.bound_contextvars(job_id=job.id):
            try:
                async with self._grace.give(job, stage=PLAN):
                    await self._plan(await self._inputs.fix(job))
            except Invalid as error:
                log.error("job cannot be planned", reason=error.reason)
                await self._stop_job(job, error)

    async def put_off(self, task: PlanJob) -> None:
        await self._feed.put_off(task)

    async def give_up(self, task: PlanJob, reason: str) -> None:
        """Stop a job that cannot be planned."""
        await self._flow.stop(task.job_id, failure=f"planning failed: {reason}", stage=PLAN)

    def stop(self) -> None:
        """End the plans in hand after their present page; other workers continue them."""
        self._stopping = True

    async def _plan(self, job: Job) -> None:
        size, named = self._inputs.batch_size(job), self._inputs.named_columns(job)
        while not isinstance(last := await self._store.batches.last(job.key), PlanEnd):
            ordinal = 0 if last is None else last.ordinal + 1
            limit = RecipientLimit(named, await count_planned(self._store, job) if last and named else 0)
            async with aclosing(self._cuts.pages(job, last, size, named)) as pages:
                async for page in pages:
                    limit.add(page)
                    if page:
                        if not await self._store.batches.add_page(_batches(job.key, ordinal, page)):
                            # Another planner is ahead.
                            break
                        ordinal += len(page)
                        await fault("plan.after_page")
                        await self._feed.feed_job(job.key)
                    await self._store.jobs.touch(job.key)
                    if await self._end_if_stopped(job):
                        return
                    if self._stopping:
                        raise Unavailable("this process is stopping; the plan goes on elsewhere")
                else:
                    await fault("plan.before_end")
                    await self._store.batches.add_end(job.key, ordinal)
        await self._end(job, last.ordinal)

    async def _end(self, job: Job, batches: int) -> None:
        """Store the number of batches of the plan, and close the job if all are settled."""
        now = self._clock.now_ns()
        read = [Event(READ_FILE, EventState.SUCCESS, "finished", now)] if job.csv_path else []
        unknown, about = await self._cuts.sum_up(job, await count_planned(self._store, job))
        messages = (*about, f"complete part {batches} of {batches}")
        planned = (Event(PLAN, EventState.SUCCESS, message, now) for message in messages)
        await self._store.jobs.end_plan(job.key, end=batches, unknown=unknown, events=[*read, *planned])
        await self._breaker.look(job.key)
        await self._feed.feed_job(job.key)
        log.info("planned", batches=batches)

    async def _end_if_stopped(self, job: Job) -> bool:
        standing = await self._store.jobs.get_standing(job.key)
        if standing is not None and not standing.stopped:
            return False
        await self._flow.drop_unsent(job.key, job.round)
        return True

    async def _stop_job(self, job: Job, error: Invalid) -> None:
        if not job.csv_path:
            await self._flow.stop(job.key, failure=error.reason, stage=SEND_DIRECT)
        elif error.field == "csvPath":
            await self._flow.stop_over_file(job, error.reason)
        else:
            await self._flow.stop(job.key, failure=error.reason, stage=READ_FILE)


def _batches(job_id: str, first: int, page: Sequence[PlannedBatch]) -> list[Batch]:
    return [
        Batch(job_id=job_id, ordinal=ordinal, range=planned.range, size=planned.size, whole=planned.whole)
        for ordinal, planned in enumerate(page, first)
    ]
