"""The moves of users on jobs: start, pause, resume, stop.

A job that starts later is stored first, then its occurrence, which begins it. The status says whether a job has
begun: after a death between two steps upkeep finds it, and an occurrence that fires in vain does no harm.

The jobs of a localized push move together. The group is stored first: if a process dies before all jobs exist, the
group stays not `made`, and upkeep or the next move completes it. When an occurrence of a job is due, a stage
begins, or a batch gets its next turn. An occurrence is complete once its task is published.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Protocol

import structlog

from shared.audience.rules.audiences import normal_locale
from shared.clock.rules.occurrences import Occurrence, once
from shared.core.errors import Conflict, Invalid, Unavailable, suggest
from shared.core.ids import Idempotency
from shared.jobs.feed import Feed, mail_of
from shared.jobs.rules.events import BY_ITSELF, PAUSE, READ_FILE, RESUME, STOP, Doer, DueMail, events_of, stop_of
from shared.jobs.rules.groups import Group, zone_jobs
from shared.jobs.rules.jobs import (
    PAUSABLE,
    RESUMABLE,
    STARTABLE,
    STOPPABLE,
    FinishJob,
    Job,
    JobStage,
    JobStatus,
    PlanJob,
    SendMail,
    job_owner,
    read_job_owner,
)
from shared.jobs.rules.mails import MailKind
from shared.jobs.rules.templates import Template, check_copies
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.store import Store

log = structlog.get_logger(__name__)
ENGLISH = "en"


async def find_templates(
    store: Store, app_id: str, names: Sequence[str], *, in_english: bool = False
) -> list[Template]:
    """The app's templates with these names, in all locales. Raises `Invalid` if a name has no template, or none in
    English if `in_english`, or the templates are too large to copy."""
    outlines = await store.templates.outlines(app_id, names)
    known = {outline.name for outline in outlines}
    english = {outline.name for outline in outlines if normal_locale(outline.locale) == ENGLISH}
    for name in names:
        if name not in known:
            hint = suggest(name, await store.templates.find_names(app_id))
            raise Invalid(f"the app has no template named {name!r}{hint}", field="template", value=name)
        if in_english and name not in english:
            raise Invalid("Cannot create job if there is no template for locale 'en'.", field="template", value=name)
    check_copies(sum(outline.size for outline in outlines))
    return await store.templates.find_named(app_id, names)


class JobFlow:
    """The moves of a job that a user may ask for. Each is safe to repeat. `role` is the role of the process."""

    def __init__(self, store: Store, feed: Feed, clock: Clock, *, role: str, mails: bool = False) -> None:
        self._store = store
        self._feed = feed
        self._clock = clock
        self._role = role
        self._mails = mails

    async def start(self, job: Job) -> tuple[Job, bool]:
        """Store the job and publish its planning, or its start if it waits for one. The second value is `False` if the
        same request had made it before. If the broker is away, upkeep plans the job later. Raises `Invalid` if the
        idempotency key was used for another request, `Conflict` if a job or a group has this id."""
        if await self._store.groups.get(job.id) is not None:
            raise Conflict("a localized job has this id", field="id", value=job.id)
        try:
            await self._store.jobs.add(job)
        except Conflict:
            earlier = await self.earlier(job.idempotency)
            if earlier is None:
                raise
            return earlier, False
        await fault("api.after_job_insert")
        await self._attempt(self._await_start(job) if job.waits else self._feed.plan(job.key), job.id)
        await self.announce(job)
        return job, True

    async def announce(self, job: Job) -> None:
        await self._attempt(self._feed.mails(job), job.id)

    async def begin(self, job_id: str) -> None:
        """Plan a scheduled job whose start has come; a job that was begun, paused or stopped meanwhile is left alone.
        If the broker is away, upkeep finds the job."""
        job = await self._store.jobs.move(job_id, to=JobStatus.RUNNING, only=STARTABLE, at=self._clock.now_ns())
        if job is not None:
            log.info("job begun", job_id=job_id)
            await self._attempt(self._feed.plan(job.key), job_id)

    async def earlier(self, key: Idempotency | None) -> Job | None:
        job = None if key is None else await self._store.jobs.with_key(key.key)
        if job is not None and job.idempotency and key is not None and not job.idempotency.is_same(key):
            raise job.idempotency.refuse(key)
        if job is not None and job.waits:
            # The process that made it may have died before it stored the occurrence.
            await self._attempt(self._await_start(job), job.id)
        return job

    async def pause(self, job_id: str, *, by: Doer = BY_ITSELF, quietly: bool = False) -> Job | None:
        now = self._clock.now_ns()
        mail = None if quietly else self._mail(MailKind.PAUSED, now, by)
        job = await self._store.jobs.move(
            job_id, to=JobStatus.PAUSED, only=PAUSABLE, at=now, mail=mail, events=events_of(PAUSE, now, by)
        )
        if job is not None:
            await self.announce(job)
        return job

    async def resume(self, job_id: str, *, by: Doer = BY_ITSELF) -> Job | None:
        held = await self._store.jobs.view(job_id)
        if held is None:
            return None
        if held.waits and held.starts > await self._store.now():
            return await self._wait_again(held.key, by)
        failed, now = (await self._store.batch_sums.counts(held.key)).failed, self._clock.now_ns()
        job = await self._store.jobs.move(
            held.key, to=JobStatus.RUNNING, only=RESUMABLE, at=now, forgiven=failed, events=events_of(RESUME, now, by)
        )
        if job is not None:
            await self._attempt(self._feed.plan(job.key) if job.unplanned else self._feed.feed_job(job.key), job_id)
        return job

    async def stop(
        self, job_id: str, *, by: Doer = BY_ITSELF, quietly: bool = False, failure: str = "", stage: str = ""
    ) -> Job | None:
        """Stop the job and drop batches that are not being sent; `None` if its status does not allow it. If no user
        asked, `failure` is the reason and `stage` the stage that failed."""
        now = self._clock.now_ns()
        job = await self._store.jobs.move(
            job_id,
            to=JobStatus.STOPPED,
            only=STOPPABLE,
            at=now,
            failure=failure,
            events=events_of(stage or STOP, now, by, failure if stage else ""),
            mail=None if quietly else self._mail(MailKind.STOPPED, now, by),
            milestone=stop_of(await self._store.now(), self._role, by, failure),
        )
        if job is not None:
            await self._attempt(self._end(job), job_id)
            await self.announce(job)
        return job

    async def stop_over_file(self, job: Job, failure: str) -> None:
        plan = await self._store.files.plan(job.file_plan_id)
        is_told_already = bool(job.zone) and plan is not None and bool(plan.failure)
        await self.stop(job.key, failure=failure, stage=READ_FILE, quietly=is_told_already)
        await self._store.files.fail(job.file_plan_id, failure, path=job.csv_path)

    async def withdraw(self, job_key: str) -> bool:
        withdrawn = await self._store.open_jobs.withdraw(job_key)
        if withdrawn:
            await self._attempt(self._store.occurrences.remove_of(start_of(job_key)), job_key)
        return withdrawn

    async def take_back(self, job_keys: Sequence[str], reason: str) -> None:
        """Withdraw new jobs, or stop those that are planned already."""
        for job_key in job_keys:
            if not await self.withdraw(job_key):
                await self.stop(job_key, failure=reason)

    async def drop_unsent(self, job_key: str, job_round: int) -> None:
        """Drop batches without an owner of a job that was stopped in this round, and publish its finish."""
        await self._store.batches.drop_unsent(job_key, job_round)
        await self._feed.finish_if_done(job_key)

    async def _await_start(self, job: Job) -> None:
        start = once(start_of(job.key), "", job.starts, accepted_at=await self._store.now())
        await self._store.occurrences.add([start])

    async def _wait_again(self, job_id: str, by: Doer) -> Job | None:
        now = self._clock.now_ns()
        events = events_of(RESUME, now, by)
        job = await self._store.jobs.move(job_id, to=JobStatus.SCHEDULED, only=RESUMABLE, at=now, events=events)
        if job is not None:
            await self._attempt(self._catch_up(job), job_id)
        return job

    async def _catch_up(self, job: Job) -> None:
        """Store the start again, or begin now: the occurrence may have fired in vain a moment before."""
        await self._await_start(job)
        if job.starts <= await self._store.now():
            await self.begin(job.key)

    def _mail(self, kind: MailKind, at: int, by: Doer) -> DueMail | None:
        return DueMail(kind.value, at, by.name if by.asks else "") if self._mails else None

    async def _end(self, job: Job) -> None:
        if job.starts_at:
            await self._store.occurrences.remove_of(start_of(job.key))
        await self.drop_unsent(job.key, job.round)

    async def _attempt(self, work: Awaitable[None], job_id: str) -> None:
        try:
            await work
        except Unavailable as error:
            log.warning("job left to upkeep", job_id=job_id, reason=str(error))


def fresh_incarnation() -> str:
    return secrets.token_hex(8)


def start_of(job_key: str) -> str:
    return job_owner(job_key, JobStage.START)


# A POST that is still running completes its group itself.
_UNMADE_FOR = timedelta(seconds=5)
_AT_ONCE = 8
_Move = Callable[[str], Awaitable[Job | None]]


class _QuietMove(Protocol):
    def __call__(self, job_id: str, *, quietly: bool = False) -> Awaitable[Job | None]: ...


class GroupFlow:
    """The moves of users on localized jobs. Each is safe to repeat."""

    def __init__(self, store: Store, jobs: JobFlow) -> None:
        self._store = store
        self._jobs = jobs

    async def start(self, group: Group) -> tuple[Group, bool]:
        """As `JobFlow.start`, for the group and all its jobs."""
        if await self._store.jobs.view(group.id) is not None:
            raise Conflict("a job has this id", field="id", value=group.id)
        try:
            await self._store.groups.add(group)
        except Conflict:
            earlier = await self.earlier(group.idempotency)
            if earlier is None:
                raise
            return earlier, False
        await fault("api.after_group_insert")
        await self._attempt(group)
        await self._jobs.announce(zone_jobs(group)[-1])
        return group, True

    async def earlier(self, key: Idempotency | None) -> Group | None:
        group = None if key is None else await self._store.groups.with_key(key.key)
        if group is not None and group.idempotency and key is not None and not group.idempotency.is_same(key):
            raise group.idempotency.refuse(key)
        if group is not None and not group.made:
            await self._attempt(group)
        return group

    async def find_incomplete(self) -> AsyncIterator[Group]:
        """Groups whose POST died before all jobs existed."""
        before = await self._store.now() - _UNMADE_FOR
        async for group in self._store.groups.find_incomplete(before):
            yield group

    async def complete(self, group: Group) -> None:
        jobs = zone_jobs(group)
        await self._store.jobs.add_missing(jobs)
        await fault("group.after_jobs")
        now = await self._store.now()
        await self._store.occurrences.add([once(start_of(job.key), "", job.starts, accepted_at=now) for job in jobs])
        await fault("group.before_made")
        await self._store.groups.mark_complete(group.id)

    async def jobs(self, group: Group) -> list[Job]:
        found = await self._store.jobs.with_ids(group.job_ids)
        return [found[job_id] for job_id in group.job_ids if job_id in found]

    async def pause(self, group: Group, *, by: Doer = BY_ITSELF) -> int:
        return await self._move_all_with_one_mail(group, partial(self._jobs.pause, by=by), JobStatus.PAUSED)

    async def resume(self, group: Group, *, by: Doer = BY_ITSELF) -> int:
        await self._ensure_complete(group)
        return await self._move_each(group.job_keys, partial(self._jobs.resume, by=by))

    async def stop(self, group: Group, *, by: Doer = BY_ITSELF) -> int:
        return await self._move_all_with_one_mail(group, partial(self._jobs.stop, by=by), JobStatus.STOPPED)

    async def _move_all_with_one_mail(self, group: Group, move: _QuietMove, to: JobStatus) -> int:
        """Move the jobs, the last one first: its move sends the one mail about all of them. If it has ended, the next
        one's move does; if it has moved already, an interrupted request has sent the mail."""
        await self._ensure_complete(group)
        left = list(group.job_keys)
        last = await self._store.jobs.get_standing(left[-1])
        if last is not None and last.is_at(to):
            return await self._move_each(left, partial(move, quietly=True))
        while left:
            if await move(left.pop()) is not None:
                return 1 + await self._move_each(left, partial(move, quietly=True))
        return 0

    async def _ensure_complete(self, group: Group) -> None:
        if not group.made:
            await self.complete(group)

    async def _move_each(self, job_keys: Sequence[str], move: _Move) -> int:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def move_one(job_key: str) -> Job | None:
            async with gate:
                return await move(job_key)

        return sum(job is not None for job in await asyncio.gather(*map(move_one, job_keys)))

    async def _attempt(self, group: Group) -> None:
        try:
            await self.complete(group)
        except Unavailable as error:
            log.warning("group left to upkeep", group_id=group.id, reason=str(error))


class DueWork:
    def __init__(self, store: Store, feed: Feed, jobs: JobFlow) -> None:
        self._store = store
        self._feed = feed
        self._jobs = jobs

    async def begin_stage(self, occurrence: Occurrence) -> None:
        """Begin the stage of the job that waited for this instant."""
        job_id, stage = read_job_owner(occurrence.owner)
        attempt, faults = occurrence.runs, occurrence.attempts
        match stage:
            case JobStage.START:
                await self._jobs.begin(job_id)
            case JobStage.PLAN:
                # The plan is being worked at again: upkeep must not start a second planning.
                await self._store.jobs.touch(job_id)
                await self._feed.publish(PlanJob(job_id, attempt=attempt, faults=faults))
            case JobStage.FINISH:
                await self._feed.publish(FinishJob(job_id, attempt=attempt, faults=faults))
            case JobStage.MAIL:
                kind, at = mail_of(occurrence)
                await self._feed.publish(SendMail(job_id, kind, at, attempt=attempt, faults=faults))

    async def bring_back_batch(self, occurrence: Occurrence) -> None:
        await self._feed.bring_back(occurrence)
