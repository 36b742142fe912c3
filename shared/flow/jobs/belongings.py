"""The job data of an app: templates, groups, jobs and their remains."""

from shared.domain.errors import Conflict
from shared.flow.accounts.belongings import Belongings
from shared.flow.jobs.kinds import UnknownKind
from shared.flow.jobs.removal import JobRemoval
from shared.store import Store

_JOBS = 100


class JobBelongings(Belongings):
    """The jobs of apps."""

    def __init__(self, store: Store, removal: JobRemoval) -> None:
        self._store = store
        self._removal = removal

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
            try:
                await self._removal.remove_some(job_keys)
            except UnknownKind as error:
                # The deletions of other apps go on.
                reason = f"{error}: let one of a newer version delete the app"
                raise Conflict(reason, field="appId", value=app_id) from None
        return bool(job_keys)
