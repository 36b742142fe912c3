"""Firing: from occurrences whose moment has come to their callbacks, or to the stages of our own work.

    ours? ──> schedules ──> judge ──> fire · skip · hold · wait · void ──> settle

Right before a group fires, one query tells which of it are still there under our tokens, and one reads their schedules.
"""

from collections.abc import Sequence
from datetime import timedelta

import structlog

from services.scheduler.deliver import Deliveries
from shared.domain.errors import Unavailable
from shared.domain.messages import Undeliverable
from shared.domain.occurrences import (
    BatchOwner,
    JobOwner,
    JobStage,
    Occurrence,
    ScheduleOwner,
    lateness,
    read_owner,
)
from shared.domain.schedules import Schedule, ScheduleState, Verdict, judge
from shared.domain.tasks import FinishJob, PlanJob
from shared.flow import DatabaseTime, Feed, JobFlow, Settlement
from shared.flow.settlement import Attempt
from shared.runtime.faults import fault
from shared.runtime.metrics import CONFLICTS
from shared.store import Store
from shared.store.occurrences import Retry

log = structlog.get_logger(__name__)

_SOON = timedelta(seconds=2)
_INCOMPLETE = timedelta(seconds=1)
_FRUITLESS_CLAIMS = 20


class Fire:
    """`Firing` for everything that can own occurrences."""

    def __init__(
        self,
        store: Store,
        time: DatabaseTime,
        deliveries: Deliveries,
        settlement: Settlement,
        feed: Feed,
        jobs: JobFlow,
        *,
        tick: timedelta,
        misfire_after: timedelta,
    ) -> None:
        self._store = store
        self._time = time
        self._deliveries = deliveries
        self._settlement = settlement
        self._feed = feed
        self._jobs = jobs
        self._tick = tick
        self._misfire_after = misfire_after

    async def fire(self, due: list[Occurrence]) -> bool:
        ours = await self._store.occurrences.ours(due)
        CONFLICTS.inc(len(due) - len(ours))
        callbacks: list[tuple[Occurrence, ScheduleOwner]] = []
        stages: list[tuple[Occurrence, JobOwner | BatchOwner]] = []
        for occurrence in ours:
            match read_owner(occurrence.owner):
                case ScheduleOwner() as owner:
                    callbacks.append((occurrence, owner))
                case JobOwner() | BatchOwner() as owner:
                    stages.append((occurrence, owner))
        moved = await self._callbacks(callbacks)
        await self._stages(stages)
        return moved

    async def _callbacks(self, due: Sequence[tuple[Occurrence, ScheduleOwner]]) -> bool:
        if not due:
            return False
        schedules = await self._store.schedules.many(list({owner.schedule_id for _, owner in due}))
        now = self._time.carried()
        judged: dict[Verdict, list[tuple[Occurrence, Schedule | None]]] = {verdict: [] for verdict in Verdict}
        for occurrence, owner in due:
            schedule = schedules.get(owner.schedule_id)
            late = lateness(occurrence.due, occurrence.accepted_at, now, self._tick)
            verdict = judge(schedule, occurrence, late, misfire_after=self._misfire_after)
            judged[verdict].append((occurrence, schedule))
        await self._store.occurrences.complete([occurrence for occurrence, _ in judged[Verdict.VOID]])
        await self._store.occurrences.retry(
            [Retry(each, now + _INCOMPLETE, each.attempts, claims=0) for each, _ in judged[Verdict.WAIT]]
        )
        await self._hold(judged[Verdict.HOLD])
        skipped = [
            Attempt(occurrence, schedule, now, skipped=True)
            for occurrence, schedule in judged[Verdict.SKIP]
            if schedule is not None
        ]
        attempts, moved = await self._attempted(
            [(occurrence, schedule) for occurrence, schedule in judged[Verdict.FIRE] if schedule is not None]
        )
        moved += await self._settlement.settle(skipped + attempts)
        return any(each.due <= now + self._tick for each in moved)

    async def _attempted(self, due: list[tuple[Occurrence, Schedule]]) -> tuple[list[Attempt], list[Occurrence]]:
        now = self._time.carried()
        deadly = [
            Attempt(occurrence, schedule, now, Undeliverable("every process that took it came to its end"))
            for occurrence, schedule in due
            if occurrence.claims > _FRUITLESS_CLAIMS
        ]
        healthy = [(occurrence, schedule) for occurrence, schedule in due if occurrence.claims <= _FRUITLESS_CLAIMS]
        await fault("clock.before_publish")
        attempts, moved = await self._deliveries.deliver(healthy, now)
        await fault("clock.after_publish")
        return deadly + attempts, moved

    async def _hold(self, paused: Sequence[tuple[Occurrence, Schedule | None]]) -> None:
        if not paused:
            return
        await self._store.occurrences.hold_these([occurrence for occurrence, _ in paused])
        # Somebody may have resumed a schedule after it was read and before its occurrence was held back.
        ids = {schedule.id for _, schedule in paused if schedule is not None}
        for schedule in (await self._store.schedules.many(list(ids))).values():
            if schedule.state is ScheduleState.ACTIVE:
                await self._store.occurrences.let_go(schedule.owner)

    async def _stages(self, due: Sequence[tuple[Occurrence, JobOwner | BatchOwner]]) -> None:
        """Our own work: the state of its documents lets upkeep find it, so publishing its task completes it."""
        for occurrence, owner in due:
            try:
                await self._stage(owner)
            except Unavailable as error:
                log.warning("work waits for its task", owner=occurrence.owner, reason=str(error))
                soon = self._time.carried() + _SOON
                await self._store.occurrences.retry([Retry(occurrence, soon, occurrence.attempts, claims=0)])
            else:
                await self._store.occurrences.complete([occurrence])

    async def _stage(self, owner: JobOwner | BatchOwner) -> None:
        match owner:
            case JobOwner(job_id, stage):
                await self._job(job_id, stage)
            case BatchOwner(job_id, ordinal):
                batch = await self._store.batches.get(job_id, ordinal)
                if batch is not None and not batch.settled:
                    await self._feed.again(batch)

    async def _job(self, job_id: str, stage: JobStage) -> None:
        match stage:
            case JobStage.START:
                await self._jobs.begin(job_id)
            case JobStage.PLAN:
                await self._feed.publish(PlanJob(job_id))
            case JobStage.FINISH:
                await self._feed.publish(FinishJob(job_id))
