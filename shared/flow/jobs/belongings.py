"""What apps have of jobs: templates, groups, and jobs with what they leave."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from shared.domain.errors import Conflict
from shared.domain.jobs.jobs import Job
from shared.flow.accounts.belongings import Belongings
from shared.flow.jobs.kinds import JobKinds
from shared.flow.jobs.remains import JobRemains
from shared.store import Store

_JOBS = 100
_STEPS = 20


class JobBelongings(Belongings):
    """The jobs of apps. `before_forgetting` is called with the keys of jobs that are about to be removed."""

    def __init__(
        self, store: Store, kinds: JobKinds, before_forgetting: Callable[[Sequence[str]], Awaitable[None]]
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._remains = JobRemains(store)
        self._before_forgetting = before_forgetting

    async def check_idle(self, app_id: str) -> None:
        if await self._store.open_jobs.has_open(app_id):
            raise Conflict("the app has unfinished jobs: stop them or wait", field="appId", value=app_id)

    async def withdraw(self, app_id: str) -> None:
        await self._store.groups.remove_of(app_id)

    async def remove_at_once(self, app_id: str) -> None:
        await self._store.templates.remove_of(app_id)

    async def remove_some(self, app_id: str) -> bool:
        job_keys = await self._store.closed_jobs.find_of_app(app_id, limit=_JOBS)
        if job_keys:
            await self._before_forgetting(job_keys)
            empty = await self._empty((await self._store.jobs.with_ids(job_keys)).values())
            if empty:
                await self._remains.remove(empty)
                await self._store.closed_jobs.remove(empty)
        return bool(job_keys)

    async def _empty(self, jobs: Iterable[Job]) -> list[str]:
        """Have their kinds forget what they have stored of these jobs, in so many steps at most; returns the keys of
        those of which nothing is left."""
        empty, steps = list[str](), _STEPS
        for job in jobs:
            while job.credential_id and steps and await self._kinds.of(job.service).forget_some(job):
                steps -= 1
            if not steps:
                break
            empty.append(job.key)
        return empty
