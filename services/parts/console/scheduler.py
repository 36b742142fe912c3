"""The console in schedulers."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from services.parts import Part
from services.parts.console.common import ConsolePart
from shared.flow.console.audit import ConsoleRetention
from shared.flow.console.overview import INTERVAL_SECONDS, Gauges
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic


class ConsoleScheduler(Part):
    def components(self, process: str) -> Sequence[Component]:
        if process != "scheduler":
            return ()
        retention = ConsoleRetention(self.store, self.capabilities.time, audit_days=self.settings.audit.retention_days)
        gauges = Gauges(self.store, self.capabilities.broker)
        chosen, bulk = self.settings.scheduler, self.parts.of(ConsolePart).bulk
        records = self.parts.of(ConsolePart).system_records
        requeue = partial(bulk.requeue_lost, timedelta(seconds=chosen.stale_seconds))
        return (
            Periodic("retention of the console", retention.run_once, interval_seconds=chosen.retention_seconds),
            Periodic("gauges", gauges.read_once, interval_seconds=INTERVAL_SECONDS),
            Periodic("system records", records.run_once, interval_seconds=chosen.sweep_seconds),
            Periodic("upkeep of bulk actions", requeue, interval_seconds=chosen.retention_seconds),
        )

    async def take_up(self) -> None:
        await self.parts.of(ConsolePart).bulk.requeue_lost(timedelta(0))
