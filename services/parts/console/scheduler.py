"""What schedulers do for the console."""

from collections.abc import Sequence

from services.parts import Part
from shared.flow.console.gauges import INTERVAL_SECONDS, Gauges
from shared.flow.console.retention import ConsoleRetention
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic


class ConsoleScheduler(Part):
    """Gauges of the whole deployment, and retention of the audit, the minutes and the processes."""

    def components(self, process: str) -> Sequence[Component]:
        if process != "scheduler":
            return ()
        retention = ConsoleRetention(self.store, self.capabilities.time, audit_days=self.settings.audit.retention_days)
        seconds = self.settings.scheduler.retention_seconds
        gauges = Gauges(self.store, self.capabilities.broker)
        return (
            Periodic("retention of the console", retention.run_once, interval_seconds=seconds),
            Periodic("gauges", gauges.read_once, interval_seconds=INTERVAL_SECONDS),
        )
