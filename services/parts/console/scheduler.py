"""What schedulers do for the console."""

from collections.abc import Sequence

from services.parts import Part
from shared.flow.console.gauges import INTERVAL_SECONDS, Gauges
from shared.flow.console.retention import AuditRetention
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic


class ConsoleScheduler(Part):
    """Gauges of the whole deployment, and retention of the audit."""

    def components(self, process: str) -> Sequence[Component]:
        if process != "scheduler":
            return ()
        retention = AuditRetention(self.store, self.capabilities.time, days=self.settings.audit.retention_days)
        seconds = self.settings.scheduler.retention_seconds
        gauges = Gauges(self.store, self.capabilities.broker)
        return (
            Periodic("retention of the audit", retention.run_once, interval_seconds=seconds),
            Periodic("gauges", gauges.read_once, interval_seconds=INTERVAL_SECONDS),
        )
