"""The planner: cuts a job's audience into batches, a page at a time, and feeds while it cuts.

Planning can be done again from wherever it stopped, by anybody: what a plan is made of is fixed before the first cut,
batches are inserted in order and never changed, and the end is itself an entry. A planner that finds an entry taken
was overtaken; it reads the last one and goes on from there.
"""

import structlog

from shared.audience import Audience
from shared.domain.audiences import BEGINNING, Cut, table_name, topic_name
from shared.domain.batches import Batch, KeyRange
from shared.domain.errors import Invalid, Unavailable
from shared.domain.jobs import Job
from shared.domain.rendering import largest_record_bytes
from shared.domain.tasks import PlanJob, Task
from shared.domain.templates import Template
from shared.flow import Feed, JobFlow
from shared.runtime.faults import fault
from shared.runtime.settings import StreamSettings, WorkerSettings
from shared.store import Store
from shared.store.batches import PlanEnd
from shared.stream import Stream

log = structlog.get_logger(__name__)

# A batch is rendered as a whole, and several are in flight: large records make small batches.
_BATCH_BYTES = 8_000_000
# The first page is short, so that the first records leave early.
_FIRST_PAGE = 4


class Planner:
    """The stage behind `push.split`."""

    def __init__(
        self,
        store: Store,
        audience: Audience,
        stream: Stream,
        feed: Feed,
        flow: JobFlow,
        *,
        worker: WorkerSettings,
        topics: StreamSettings,
    ) -> None:
        self._store = store
        self._audience = audience
        self._stream = stream
        self._feed = feed
        self._flow = flow
        self._worker = worker
        self._topics = topics
        self.stopping = False

    async def __call__(self, task: Task) -> None:
        """Plan the job to its end, or until it is stopped. Raises `Unavailable`."""
        assert isinstance(task, PlanJob)
        job = await self._store.jobs.get(task.job_id)
        if job is None or job.ended:
            return
        with structlog.contextvars.bound_contextvars(job_id=job.id):
            try:
                await self._plan(await self._begun(job))
            except Invalid as error:
                log.error("job cannot be planned", reason=error.reason)
                await self._flow.stop(job.id, failure=error.reason)

    async def put_off(self, task: Task) -> None:
        """Have the plan taken up again later, from wherever it stands then."""
        assert isinstance(task, PlanJob)
        await self._feed.put_off(task)

    async def give_up(self, task: Task, reason: str) -> None:
        """Stop a job that nobody can plan."""
        assert isinstance(task, PlanJob)
        await self._flow.stop(task.job_id, failure=f"planning failed: {reason}")

    async def _begun(self, job: Job) -> Job:
        """The job with everything fixed that its plan is made of."""
        if job.plan.highest is not None:
            return job
        templates = await self._templates(job)
        topic = topic_name(self._topics.topic_template, job.app_name, job.service)
        await self._stream.setup({topic: self._topics.push_topic_partitions})
        highest = await self._audience.highest(table_name(job.app_name, job.service))
        begun = await self._store.jobs.begin_plan(job.id, highest=highest, templates=templates)
        return begun or await self._again(job)

    async def _again(self, job: Job) -> Job:
        found = await self._store.jobs.get(job.id)
        if found is None:
            raise Invalid("the job is gone", field="job")
        return found

    async def _templates(self, job: Job) -> tuple[Template, ...]:
        templates = await self._store.templates.named(job.app_id, job.template_names)
        for name in {*job.template_names} - {template.name for template in templates}:
            raise Invalid(f"No templates were found with name {name}", field="template")
        return tuple(templates)

    async def _plan(self, job: Job) -> None:
        size = min(self._worker.batch_size, max(1, _BATCH_BYTES // largest_record_bytes(job)))
        pages = 0
        while True:
            match await self._store.batches.last(job.id):
                case PlanEnd(ordinal=end):
                    await self._store.jobs.end_plan(job.id, end=end)
                    await self._feed.job(job.id)
                    log.info("planned", batches=end)
                    return
                case last:
                    await self._page(job, last, size, page_batches=self._worker.page_batches if pages else _FIRST_PAGE)
            pages += 1
            if await self._stopped(job):
                return
            if self.stopping:
                raise Unavailable("this process is stopping; the plan goes on elsewhere")

    async def _page(self, job: Job, last: Batch | None, size: int, *, page_batches: int) -> None:
        assert job.plan.highest is not None
        ordinal, after = (0, BEGINNING) if last is None else (last.ordinal + 1, last.range.upto)
        cuts = await self._audience.cut(
            table_name(job.app_name, job.service),
            job.filters,
            after=after,
            upto=job.plan.highest,
            size=size,
            batches=page_batches,
        )
        if not cuts:
            await fault("plan.before_end")
            await self._store.batches.add_end(job.id, ordinal)
            return
        await self._store.batches.add_page(_batches(job.id, ordinal, after, cuts))
        await fault("plan.after_page")
        await self._store.jobs.touch(job.id)
        await self._feed.job(job.id)

    async def _stopped(self, job: Job) -> bool:
        standing = await self._store.jobs.standing(job.id)
        if standing is not None and not standing.stopped:
            return False
        await self._flow.drop_unsent(job.id)
        return True


def _batches(job_id: str, ordinal: int, after: int, cuts: list[Cut]) -> list[Batch]:
    batches = []
    for number, cut in enumerate(cuts, start=ordinal):
        batches.append(Batch(job_id=job_id, ordinal=number, range=KeyRange(after, cut.upto), size=cut.size))
        after = cut.upto
    return batches
