"""Localized pushes: make the jobs of all zones, and move them together.

The group is stored first. If a process dies before all jobs exist, the group stays not `made`, and upkeep or the next
move completes it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Protocol

import structlog

from shared.domain.clock.occurrences import once
from shared.domain.errors import Conflict, Unavailable
from shared.domain.idempotency import Idempotency
from shared.domain.jobs.events import BY_ITSELF, Doer
from shared.domain.jobs.groups import Group, zone_jobs
from shared.domain.jobs.jobs import Job, JobStatus
from shared.flow.jobs.jobs import JobFlow, start_of
from shared.runtime.faults import fault
from shared.store import Store

log = structlog.get_logger(__name__)

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
        """Store the group and all its jobs. The second value is `False` if the same request had made it before.

        Raises:
            Invalid: the idempotency key was used for another request.
            Conflict: a group or a job has this id.
        """
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
        """The group that the same request made before. Raises `Invalid` if the key was used for another request."""
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
        """Add missing jobs and starts."""
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
        """Move these jobs, some at a time; returns how many have moved."""
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
