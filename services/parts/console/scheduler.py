"""What schedulers do for the console."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from services.parts import Part
from services.parts.console.common import ConsolePart
from shared.flow.console.retention import AuditRetention
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic


class ConsoleScheduler(Part):
    """Retention of the audit and of bulk actions, and upkeep of these."""

    def components(self, process: str) -> Sequence[Component]:
        if process != "scheduler":
            return ()
        retention = AuditRetention(self.store, self.capabilities.time, days=self.settings.audit.retention_days)
        chosen, bulk = self.settings.scheduler, self.parts.of(ConsolePart).bulk
        requeue = partial(bulk.requeue_lost, timedelta(seconds=chosen.stale_seconds))
        return (
            Periodic("retention of the audit", retention.run_once, interval_seconds=chosen.retention_seconds),
            Periodic("upkeep of bulk actions", requeue, interval_seconds=chosen.upkeep_seconds),
        )

    async def take_up(self) -> None:
        await self.parts.of(ConsolePart).bulk.requeue_lost(timedelta(0))
