"""Importing jobs: history in pages, and jobs that will start here one by one, checked as by POST."""

from collections.abc import Sequence

from msgspec.structs import replace

from carillon_imports.kinds import ImportedKind, Reasons, taken_meanwhile
from carillon_imports.marathon.kinds import Names
from carillon_imports.marathon.past import PastStanding, past_standing, read_job
from carillon_imports.marathon.source import JobRow
from carillon_imports.verdicts import (
    AS_BEFORE,
    BROUGHT,
    BROUGHT_TO_START,
    STARTS_HERE,
    STARTS_TWICE,
    ImportVerdict,
)
from services.api.jobs import job_body
from shared.audience import Audience
from shared.domain.audience.audiences import table_name
from shared.domain.errors import Conflict, Refused
from shared.domain.jobs.jobs import Job
from shared.flow.jobs.jobs import JobFlow, fresh_incarnation
from shared.flow.jobs.template_names import find_templates
from shared.store import Store


class Starts:
    """Checks and starts jobs whose start lies ahead."""

    def __init__(
        self, store: Store, audience: Audience, flow: JobFlow, *, now_ns: int, look_for_templates: bool
    ) -> None:
        self._store = store
        self._audience = audience
        self._flow = flow
        self._now_ns = now_ns
        self._look_for_templates = look_for_templates

    async def check(self, job: Job) -> None:
        """Raise `Refused` if POST would refuse the job."""
        job_body.check(_body(job), now=self._now_ns)
        if self._look_for_templates:
            await find_templates(self._store, job.app_id, job.template_names, in_english=True)
        await self._audience.check(table_name(job.app_name, job.service), job.filters)

    async def start(self, job: Job) -> bool:
        """Store the job and its occurrence; `False` if its id is taken."""
        try:
            await self._flow.start(replace(job, incarnation=fresh_incarnation()))
        except Conflict:
            return False
        return True


class JobsKind(ImportedKind[JobRow, Job]):
    """Imports jobs."""

    name = "jobs"
    left_out = ("feedbacks", "changed_at", "app_name")  # both sides count feedback; an app's new name changes no job

    def __init__(self, store: Store, names: Names, starts: Starts, *, now_ns: int, scheduled: bool) -> None:
        self._jobs = store.jobs
        self._closed = store.closed_jobs
        self._names = names
        self._starts = starts
        self._now_ns = now_ns
        self._scheduled = scheduled

    def label(self, row: JobRow) -> str:
        return f"{row.template_name} of {self._names.name_of(row.app_id)}"

    def read(self, row: JobRow) -> Job:
        return read_job(row, self._names.of(row.app_id), now_ns=self._now_ns, scheduled=self._scheduled)

    def note(self, value: Job) -> str:
        return STARTS_HERE if value.open else self.digest(value)

    def verdict_if_new(self, value: Job) -> ImportVerdict:
        return BROUGHT_TO_START if value.open else BROUGHT

    def verdict_if_started(self, row: JobRow) -> ImportVerdict:
        harmless = {PastStanding.STOPPED, PastStanding.EXPIRED}
        return AS_BEFORE if past_standing(row, self._now_ns) in harmless else STARTS_TWICE

    def behind(self, here: Job, there: Job) -> bool:
        return any(here.feedbacks.get(outcome, 0) < count for outcome, count in there.feedbacks.items())

    async def here(self, ids: Sequence[str]) -> dict[str, Job]:
        return await self._jobs.with_ids(ids, context=True)

    async def find_refused(self, new: Sequence[Job]) -> Reasons:
        reasons: Reasons = {}
        for job in new:
            try:
                if job.open:
                    await self._starts.check(job)
            except Refused as error:
                reasons[job.id] = error.reason
        return reasons

    async def add(self, new: Sequence[Job]) -> Reasons:
        ended = [job for job in new if not job.open]
        taken = {ended[position].id for position in await self._closed.add(ended)}
        return taken_meanwhile(taken | {job.id for job in new if job.open and not await self._starts.start(job)})

    async def replace(self, here: Job, there: Job) -> bool:
        return await self._closed.replace(there)


def _body(job: Job) -> job_body.JobBody:
    return job_body.JobBody(
        id=job.id,
        service=job.service,
        filters=job.filters,
        context=job.context,
        metadata=job.metadata,
        expires_at=job.expires_at,
        starts_at=job.starts_at,
        past_time_strategy=job.past_time_strategy,
        csv_path=job.csv_path,
        control_group=job.control_group,
    )
