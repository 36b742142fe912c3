"""Jobs of Marathon: those that ended, as they are kept, and those that are still to start."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, assert_never

from msgspec.structs import replace

from carillon_imports.carry import ImportedKind, Reasons, taken_meanwhile
from carillon_imports.marathon.kinds import Names, read_json
from carillon_imports.marathon.source import JobRow
from carillon_imports.report import AS_BEFORE, BROUGHT, BROUGHT_TO_START, STARTS_HERE, STARTS_TWICE, ImportVerdict
from services.api.jobs import job_body
from shared.audience.rules.audiences import table_name
from shared.core.errors import Conflict, Invalid, Refused
from shared.drivers.postgres import Audience
from shared.jobs.moves import JobFlow, find_templates, fresh_incarnation
from shared.jobs.rules.batches import Totals
from shared.jobs.rules.jobs import Job, JobStatus
from shared.jobs.rules.templates import check_json
from shared.push.rules.feedback import MAX_OUTCOME_CHARACTERS, admit_outcomes
from shared.push.rules.records import SERVICES
from shared.store import Store

MAX_OUTCOMES = 100
EXPIRED = "expired at Marathon before it was completed"
_MARATHON = frozenset({"", "paused", "stopped", "circuitbreak"})


class PastStanding(Enum):
    """The standing of a job at Marathon. The last four have not ended; the text is the reason against importing such a
    job as history."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    EXPIRED = "expired"
    LOCALIZED = (
        "one zone of a localized job that has not ended: let it end there, or stop its jobs there and post it here"
    )
    HELD = "paused or broken off there: resume it and let it end, or stop it there; then import again"
    WAITS = "starts in the future there: --scheduled brings it as a job that starts here, or let it run there"
    RUNS = "has not ended there: let it end, or stop it there; then import again"


def past_standing(row: JobRow, now_ns: int) -> PastStanding:
    """The job's standing at this moment (ns). Raises `Invalid` for a status that Marathon does not have."""
    if row.status not in _MARATHON:
        raise Invalid("invalid status: Marathon has no such", field="status", value=row.status)
    if row.status == "stopped":
        return PastStanding.STOPPED
    if row.completed_at:
        return PastStanding.COMPLETED
    if 0 < row.expires_at <= now_ns:
        return PastStanding.EXPIRED
    if row.localized:
        return PastStanding.LOCALIZED
    if row.status:
        return PastStanding.HELD
    return PastStanding.WAITS if row.starts_at > now_ns else PastStanding.RUNS


def read_job(row: JobRow, app_name: str, *, now_ns: int, scheduled: bool) -> Job:
    """The job: closed, or with `scheduled` waiting for its start. Raises `Conflict` with advice if it has not ended."""
    stands = past_standing(row, now_ns)
    match stands:
        case PastStanding.COMPLETED:
            return _past(row, app_name, JobStatus.COMPLETED)
        case PastStanding.STOPPED:
            return _past(row, app_name, JobStatus.STOPPED)
        case PastStanding.EXPIRED:
            return _past(row, app_name, JobStatus.STOPPED, failure=EXPIRED)
        case PastStanding.WAITS if scheduled:
            return _job(row, app_name, status=JobStatus.SCHEDULED)
        case PastStanding.WAITS | PastStanding.LOCALIZED | PastStanding.HELD | PastStanding.RUNS:
            raise Conflict(stands.value, field="status")
        case _:
            assert_never(stands)


def _past(row: JobRow, app_name: str, status: JobStatus, *, failure: str = "") -> Job:
    """An ended job. Marathon does not distinguish sent from held out or failed, so everything done counts as sent."""
    totals = Totals(
        batches=row.total_batches,
        settled=row.completed_batches,
        planned=row.total_tokens,
        sent=row.completed_tokens,
    )
    return _job(
        row,
        app_name,
        status=status,
        open=False,
        totals=totals,
        completed_at=row.completed_at,
        control_group_csv_path=row.control_group_csv_path,
        feedbacks=_feedbacks(row),
        failure=failure,
    )


def _job(row: JobRow, app_name: str, *, status: JobStatus, **more: Any) -> Job:
    if not 0 <= row.control_group < 1:
        raise Invalid("invalid controlGroup: it must be at least 0 and less than 1", field="controlGroup")
    if row.service not in SERVICES:
        raise Invalid("invalid service: must be one of apns, fcm", field="service", value=row.service)
    return Job(
        id=row.id,
        app_id=row.app_id,
        app_name=app_name,
        service=row.service,
        template_names=tuple(row.template_name.split(",")),
        created_by=row.created_by,
        group_id=row.job_group_id,
        status=status,
        filters=_filters(row),
        context=_checked_json("context", row.context),
        metadata=_checked_json("metadata", row.metadata),
        past_time_strategy=row.past_time_strategy,
        csv_path=row.csv_path,
        control_group=row.control_group,
        localized=row.localized,
        expires_at=row.expires_at,
        starts_at=row.starts_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
        **more,
    )


def _checked_json(field: str, text: str | None) -> dict[str, Any]:
    value = read_json(field, text)
    check_json(field, value)
    return value


def _filters(row: JobRow) -> dict[str, str]:
    filters = _checked_json("filters", row.filters)
    if not all(isinstance(value, str) for value in filters.values()):
        raise Invalid("invalid filters: every value must be a string", field="filters")
    return filters


def _feedbacks(row: JobRow) -> dict[str, int]:
    """The counts by outcome, within the limits for the number of outcomes and the length of their names."""
    counts: dict[str, int] = {}
    for outcome, count in _checked_json("feedbacks", row.feedbacks).items():
        if isinstance(count, bool) or not isinstance(count, int):
            raise Invalid("invalid feedbacks: every count must be an integer", field="feedbacks")
        name = outcome[:MAX_OUTCOME_CHARACTERS] or "other"
        counts[name] = counts.get(name, 0) + count
    return admit_outcomes((), counts, MAX_OUTCOMES)


class Starts:
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
