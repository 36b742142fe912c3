"""Retention of the console: audit, bulk actions, minutes and processes are removed after their time."""

from datetime import timedelta

from shared.domain.console.minutes import KEPT
from shared.domain.console.processes import FORGOTTEN_AFTER
from shared.flow.time import DatabaseTime
from shared.runtime.loops import Swept, repeat
from shared.store import Store

_STEP = 1_000


class ConsoleRetention:
    """Removes old data of the console. The audit is kept for `audit_days`."""

    def __init__(self, store: Store, time: DatabaseTime, *, audit_days: float) -> None:
        self._store = store
        self._time = time
        self._audit_kept = timedelta(days=audit_days)

    async def run_once(self) -> Swept:
        store, now = self._store, await self._time.now()
        audited, counted = now - self._audit_kept, now - KEPT
        forgotten = (
            await repeat(lambda: store.audit.forget(before=audited, limit=_STEP), while_full=_STEP)
            + await repeat(lambda: store.bulk_actions.forget(before=audited, limit=_STEP), while_full=_STEP)
            + await repeat(lambda: store.minutes.forget(before=counted, limit=_STEP), while_full=_STEP)
            + await store.processes.forget_gone(before=now - FORGOTTEN_AFTER, limit=_STEP)
        )
        return Swept(discarded=forgotten)
