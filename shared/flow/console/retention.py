"""Retention of the audit and of bulk actions: who did what is forgotten after its time, in small steps."""

from datetime import timedelta

from shared.flow.time import DatabaseTime
from shared.runtime.loops import Swept, repeat
from shared.store import Store

_STEP = 1_000


class AuditRetention:
    """Forgets what is older than so many days, a round at a time."""

    def __init__(self, store: Store, time: DatabaseTime, *, days: float) -> None:
        self._store = store
        self._time = time
        self._kept = timedelta(days=days)

    async def run_once(self) -> Swept:
        """Forget what is old. Raises `Unavailable`."""
        before = await self._time.now() - self._kept
        forgotten = await repeat(lambda: self._store.audit.forget(before=before, limit=_STEP), while_full=_STEP)
        ended = await repeat(lambda: self._store.bulk_actions.forget(before=before, limit=_STEP), while_full=_STEP)
        return Swept(discarded=forgotten + ended)
