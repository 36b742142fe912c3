"""The documents that belong to a closed job. Retention removes them later, or the deletion of the app does."""

from collections.abc import Sequence

from shared.store import Store


class JobRemains:
    """Removes the documents of closed jobs. Safe to repeat."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def remove(self, job_keys: Sequence[str]) -> None:
        """Remove batches and held-out users of these jobs, and plans that no open job reads."""
        await self._store.batches.remove_of(job_keys)
        await self._store.held_out.remove_of(job_keys)
        if finished := await self._find_finished_plans(job_keys):
            await self._store.files.remove_of(finished)
            await self._store.divisions.remove_of(finished)

    async def _find_finished_plans(self, job_keys: Sequence[str]) -> list[str]:
        """The file plans and divisions that no open job reads."""
        jobs = (await self._store.jobs.with_ids(job_keys)).values()
        apart = [job.file_plan_id for job in jobs if job.csv_path and not job.zone]
        plans = {job.file_plan_id: job.group_id for job in jobs if job.zone}
        is_open = self._store.open_jobs.has_open_in
        return apart + [plan for plan, group_id in plans.items() if not await is_open(group_id)]
