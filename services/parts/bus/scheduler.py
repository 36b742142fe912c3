"""The bus in schedulers."""

from collections.abc import Mapping, Sequence

from services.parts import Part
from services.parts.bus.common import BusPart
from services.scheduler.fire import OnDue
from shared.domain.bus.wake_ups import QUEUE_OWNER
from shared.flow.bus.standing import INTERVAL_SECONDS, QueueGauges
from shared.flow.bus.upkeep import INTERVAL_SECONDS as BACKLOG_SECONDS
from shared.flow.bus.upkeep import INTERVAL_SECONDS as COMPACTION_SECONDS
from shared.flow.bus.upkeep import BacklogUpkeep, BusRetention, ChunkUpkeep
from shared.flow.bus.waking import DueQueues
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic, Swept

_UNWOKEN_SECONDS, _REGISTRY_SECONDS, _REPLAY_SECONDS = 4.5, 9.0, 14.5


class BusScheduler(Part):
    def on_due(self) -> Mapping[str, OnDue]:
        return {QUEUE_OWNER: DueQueues(self.parts.of(BusPart).waker).begin}

    def components(self, process: str) -> Sequence[Component]:
        if process != "scheduler":
            return ()
        bus, now = self.parts.of(BusPart), self.capabilities.time.now
        gauges = QueueGauges(self.store, bus.standings, now)
        retention = BusRetention(self.store, self.capabilities.time, self.settings.bus)
        backlogs = BacklogUpkeep(self.store, self.capabilities.time, bus.backlog_limits)
        interval = self.settings.scheduler.retention_seconds
        return (
            Periodic("upkeep of unwoken queues", bus.unwoken.run_once, interval_seconds=_UNWOKEN_SECONDS),
            Periodic("upkeep of the registry", self._end_writers, interval_seconds=_REGISTRY_SECONDS),
            Periodic("upkeep of replays", bus.replaying.requeue_lost, interval_seconds=_REPLAY_SECONDS),
            Periodic("gauges of queues", gauges.read_once, interval_seconds=INTERVAL_SECONDS),
            Periodic("upkeep of chunks", ChunkUpkeep(self.store).run_once, interval_seconds=COMPACTION_SECONDS),
            Periodic("limits of backlogs", backlogs.run_once, interval_seconds=BACKLOG_SECONDS),
            Periodic("retention of the bus", retention.run_once, interval_seconds=interval),
        )

    async def _end_writers(self) -> Swept:
        """End the locks of processes that died while they changed subscriptions, because other loops may wait for
        them."""
        now = await self.capabilities.time.now()
        return Swept(discarded=await self.store.bus_subscriptions.end_overdue_writers(now))
