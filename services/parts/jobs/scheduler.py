"""Jobs in schedulers."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from services.parts import Part
from services.parts.jobs.common import JobsPart
from services.scheduler.fire import OnDue
from shared.domain.jobs.jobs import BATCH, JOB
from shared.flow.jobs.moves import DueWork
from shared.flow.jobs.retention import JobRetention
from shared.flow.jobs.upkeep import ShardTurns, Upkeep, UpkeepPatience
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic

# Work whose queue is busy counts as lost after this multiple of the usual patience.
_AT_LATEST = 10
# A round is a little shorter than the time between two searches, which varies, so that each search finds its round.
_ROUND = 0.8


class JobsScheduler(Part):
    def on_due(self) -> Mapping[str, OnDue]:
        jobs = self.parts.of(JobsPart)
        due = DueWork(self.store, jobs.feed, jobs.flow)
        return {JOB: due.begin_stage, BATCH: due.bring_back_batch}

    def components(self, process: str) -> Sequence[Component]:
        if process != "scheduler":
            return ()
        chosen = self.settings.scheduler
        stale = timedelta(seconds=chosen.stale_seconds)
        patience = UpkeepPatience(
            owned=timedelta(seconds=self.settings.stream.transaction_timeout_seconds + chosen.margin_seconds),
            queued=stale,
            at_latest=_AT_LATEST * stale,
        )
        turns = ShardTurns(
            self.store.upkeep_turns,
            self.capabilities.time.now,
            every=timedelta(seconds=_ROUND * chosen.upkeep_seconds),
            lease=timedelta(seconds=chosen.lease_seconds),
        )
        retention = JobRetention(self.store, self.capabilities.time, self.parts.of(JobsPart).kinds, chosen)
        return (
            Periodic("upkeep", self._upkeep(patience, turns).sweep, interval_seconds=chosen.upkeep_seconds),
            Periodic("retention of jobs", retention.run_once, interval_seconds=chosen.retention_seconds),
            Periodic(
                "deleted jobs", self.parts.of(JobsPart).removal.run_once, interval_seconds=chosen.retention_seconds
            ),
        )

    async def take_up(self) -> None:
        none = timedelta(0)
        await self._upkeep(UpkeepPatience(none, none, none)).run_once()

    def _upkeep(self, patience: UpkeepPatience, turns: ShardTurns | None = None) -> Upkeep:
        jobs, broker = self.parts.of(JobsPart), self.capabilities.broker
        return Upkeep(self.store, broker, jobs.feed, jobs.flow, jobs.groups, jobs.breaker, jobs.kinds, patience, turns)
