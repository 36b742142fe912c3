"""What schedulers do for messages."""

from collections.abc import Sequence

from services.parts import Part
from shared.flow.messages.suppressions import SuppressionUpkeep
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic


class MessagesScheduler(Part):
    """Upkeep of suppressions."""

    def components(self, process: str) -> Sequence[Component]:
        if process != "scheduler":
            return ()
        upkeep, interval = SuppressionUpkeep(self.store), self.settings.scheduler.retention_seconds
        return (Periodic("upkeep of suppressions", upkeep.run_once, interval_seconds=interval),)
