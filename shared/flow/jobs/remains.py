"""The documents that a closed job leaves beside its own, and who removes them: retention in its time, or the deletion
of its app."""

from collections.abc import Sequence

from shared.store import Store


class JobRemains:
    """Removes what closed jobs have left. Doing it twice does nothing more. All raise `Unavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def remove(self, job_keys: Sequence[str]) -> None:
        """Remove the batches of these jobs, whom their control groups hold out, and the plans that no open job
        reads."""
        await self._store.batches.remove_of(job_keys)
        await self._store.held_out.remove_of(job_keys)
        if finished := await self._find_finished_plans(job_keys):
            await self._store.files.remove_of(finished)
            await self._store.divisions.remove_of(finished)

    async def _find_finished_plans(self, job_keys: Sequence[str]) -> list[str]:
        """The plans of files, and the divisions, that nobody will read any more, now that these jobs are closed."""
        jobs = (await self._store.jobs.with_ids(job_keys)).values()
        apart = [job.file_plan_id for job in jobs if job.csv_path and not job.zone]
        plans = {job.file_plan_id: job.group_id for job in jobs if job.zone}
        is_open = self._store.open_jobs.has_open_in
        return apart + [plan for plan, group_id in plans.items() if not await is_open(group_id)]
