"""System records: copy milestones of jobs to the audit and the outbox, and report dead processes to the audit.

    find what to report ──> write the missing records ──> note that they are written

If a process dies before the note, the milestones are found again. A record has the same id whichever process writes
it, so each exists exactly once. Moves do not wait for this: a milestone is stored in its job by the same write as
the move, and schedulers report it a moment later.

Audit, bulk actions, minutes and processes are removed after their time.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from shared.console.rules.audit import AuditRecord, gone_record, job_event, milestone_record
from shared.console.rules.processes import FORGOTTEN_AFTER, GONE_AFTER, KEPT
from shared.core.documents import OwnEvent
from shared.jobs.store_milestones import JobMilestones
from shared.runtime.faults import fault
from shared.runtime.loops import Swept, repeat
from shared.runtime.metrics import AUDIT_RECORDS
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)
_AT_ONCE = 200
SILENT_FOR = timedelta(seconds=30)
"""Longer than a heartbeat takes that hangs in a call to a store which was away."""


class SystemRecords:
    """Reports jobs that tripped, completed or stopped, and dead processes. `role` is the role of this process."""

    def __init__(self, store: Store, time: DatabaseTime, *, role: str) -> None:
        self._store = store
        self._time = time
        self._role = role
        self._silent: dict[tuple[str, datetime], datetime] = {}

    async def run_once(self) -> Swept:
        told = await repeat(self._tell_milestones, while_full=_AT_ONCE) + await self.tell_gone()
        return Swept(claimed=told)

    async def tell_of_jobs(self, job_keys: Sequence[str]) -> None:
        """Report the milestones of these jobs, which are about to be removed."""
        await self._tell(await self._store.milestones.find_of(job_keys))

    async def tell_gone(self) -> int:
        """Report processes that are gone and that this process itself has found silent for `SILENT_FOR`: after an
        outage of the store, or when a laptop wakes up, all processes seem to be gone until their next heartbeat."""
        now = await self._time.now()
        silent = await self._store.processes.find_gone(before=now - GONE_AFTER)
        self._silent = {
            (process.id, process.seen_at): self._silent.get((process.id, process.seen_at), now) for process in silent
        }
        gone = [each for each in silent if self._silent[each.id, each.seen_at] <= now - SILENT_FOR]
        if gone:
            await self._write([gone_record(process, role=self._role) for process in gone])
            await self._store.processes.note_gone(gone)
        return len(gone)

    async def _tell_milestones(self) -> int:
        found = await self._store.milestones.find(limit=_AT_ONCE)
        if found:
            await self._tell(found)
        return len(found)

    async def _tell(self, found: Sequence[JobMilestones]) -> None:
        await self._write([record for job in found for record in _records_of(job)])
        await self._store.outbox.add([event for job in found for event in _events_of(job)])
        await self._store.milestones.take(found)

    async def _write(self, records: Sequence[AuditRecord]) -> None:
        if not records:
            return
        await fault("audit.before_system_records")
        for record in await self._store.audit.add_missing(records):
            AUDIT_RECORDS.labels(record.act, record.outcome).inc()
            log.info("told the audit", record=record.id, act=record.act, on=record.on.id, reason=record.reason)
        await fault("audit.after_system_records")


def _records_of(job: JobMilestones) -> list[AuditRecord]:
    return [
        milestone_record(milestone, job_id=job.id, job_key=job.key, app_id=job.app_id, name=job.name)
        for milestone in job.milestones
        if not milestone.asked
    ]


def _events_of(job: JobMilestones) -> list[OwnEvent]:
    events = [
        job_event(
            milestone,
            job_id=job.id,
            job_key=job.key,
            app_id=job.app_id,
            group_id=job.group_id,
            schedule_key=job.schedule.rpartition("/")[2],
            totals=job.totals,
        )
        for milestone in job.milestones
    ]
    return [event for event in events if event is not None]


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
