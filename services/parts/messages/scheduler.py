"""Messages in schedulers."""

from collections.abc import Mapping, Sequence

from services.parts import Part
from services.parts.messages.common import MessagesPart
from services.scheduler.fire import OnDue
from shared.domain.messages.singles import CREDENTIAL, SINGLES
from shared.flow.messages.barring import SuppressionUpkeep
from shared.flow.messages.figures import INTERVAL_SECONDS, CredentialGauges
from shared.flow.messages.retention import MessageRetention
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic


class MessagesScheduler(Part):
    def on_due(self) -> Mapping[str, OnDue]:
        part = self.parts.of(MessagesPart)
        return {CREDENTIAL: part.feed.feed_due, SINGLES: part.singles.wake_due}

    def components(self, process: str) -> Sequence[Component]:
        if process != "scheduler":
            return ()
        upkeep, interval = SuppressionUpkeep(self.store), self.settings.scheduler.retention_seconds
        gauges, singles = CredentialGauges(self.store), self.parts.of(MessagesPart).singles
        retention = MessageRetention(self.store, self.capabilities.time, self.settings.providers)
        return (
            Periodic(
                "upkeep of single messages",
                singles.wake_lost,
                interval_seconds=self.settings.scheduler.sweep_seconds,
            ),
            Periodic("upkeep of what single messages said", singles.forget_contents, interval_seconds=interval),
            Periodic("gauges of credentials", gauges.read_once, interval_seconds=INTERVAL_SECONDS),
            Periodic("upkeep of suppressions", upkeep.run_once, interval_seconds=interval),
            Periodic("retention of messages", retention.run_once, interval_seconds=interval),
        )
