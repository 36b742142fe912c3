"""Feeding dry runs: they call no provider, so they need no place of a credential."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from shared.domain.jobs.batches import Batch
from shared.store import Store

_JOBS_LOOKED_AT = 200
_BATCHES = 2
_FRESH = timedelta(seconds=60)


async def feed_dry_runs(
    store: Store,
    credential_id: str,
    *,
    find_planned: Callable[[str, datetime], Awaitable[Batch | None]],
    publish: Callable[[Batch], Awaitable[Batch | None]],
) -> None:
    """Keep a few batches of dry runs on their way, so that they keep no worker from sending."""
    room = _BATCHES
    for job in await store.message_jobs.find_dry_runs(credential_id, limit=_JOBS_LOOKED_AT):
        # A batch that cannot be read, or whose task is lost, blocks the others only for `_FRESH`.
        on_their_way, now = await store.batches.find_on_their_way(job.key), await store.now()
        room -= sum(now - (batch.changed_at or now) < _FRESH for each in on_their_way.values() for batch in each)
        while room > 0 and (found := await find_planned(job.key, await store.now())) is not None:
            room -= await publish(found) is not None
        if room <= 0:
            return
