"""The figures of stopping all jobs that match a filter, before it happens."""

from shared.domain.console.bulk_actions import BulkAct, BulkFilter
from shared.flow.console.bulk_things import statuses_for
from shared.flow.jobs.figures import MoveFigures, sum_unsent
from shared.store import Store

SUMMED = 500
"""With more jobs than this, devices are not summed."""


async def sum_stopped(store: Store, filter: BulkFilter, matched: int) -> MoveFigures:
    """The figures of the matching jobs."""
    statuses = statuses_for(BulkAct.STOP_JOBS, filter)
    keys = await store.bulk_jobs.keys(statuses, filter, before=2**63 - 1, limit=SUMMED)
    if keys.more:
        return MoveFigures(matched, None, None)
    return await sum_unsent(store, list((await store.jobs.with_ids(keys)).values()) if keys else [])
