"""Closing a job: exact totals, summed from its batches, and the file of its control group, each written once.

Completion is counted, never guessed: the plan has its end and every batch is settled. A stopped job closes when
nothing of it is unsettled, wherever its plan stood.
"""

import csv
import io
from collections.abc import AsyncIterator, Sequence

from shared.blobs import Blobs
from shared.domain.batches import Receipt
from shared.domain.jobs import FINISH, SEND, SEND_ENDED, STOPPABLE, DueMail, Event, EventState, Job, JobStatus, Totals
from shared.domain.mails import Kind
from shared.domain.repeats import Repeats, hashes_of
from shared.flow.breaker import Breaker
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.store import Store
from shared.store.batches import PlanEnd

_HEADER = ("controlGroupUserIds",)


class Finish:
    """Closes jobs; doing it twice does nothing more."""

    def __init__(
        self, store: Store, blobs: Blobs, breaker: Breaker, clock: Clock, *, control_group_folder: str, mails: bool
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._breaker = breaker
        self._clock = clock
        self._control_group_folder = control_group_folder
        self._mails = mails

    async def job(self, job_id: str) -> Job | None:
        """The job as it was closed; `None` when it is not ready to be, or was closed before. Raises `Unavailable`."""
        standing = await self._store.jobs.standing(job_id)
        if standing is None or not standing.may_finish:
            return None
        if standing.stopped:
            await self._end_plan(job_id)
            await self._store.batches.drop_unsent(job_id)
        job = await self._store.jobs.view(job_id)
        if job is None or await self._store.batches.any_unsettled(job_id):
            return None
        if not standing.stopped and await self._breaker.look(job_id):
            return None
        totals = (await self._store.batches.totals([job_id])).get(job_id, Totals())
        summed = Receipt()
        async for receipt in self._store.batches.receipts(job_id):
            summed = summed + receipt
        await fault("finish.after_totals")
        if await self._found_nobody(job, totals):
            await self._stop(job, totals)
        return await self._closed(job, totals, summed)

    async def _closed(self, job: Job, totals: Totals, summed: Receipt) -> Job | None:
        path = await self._control_group(job) if job.control_group else ""
        await fault("finish.after_file")
        now = self._clock.now_ns()
        events = [
            Event(SEND_ENDED, EventState.SUCCESS, "Finished all batches", now),
            *([Event(FINISH, EventState.RUNNING, "sending control group", now)] if path else ()),
            Event(FINISH, EventState.SUCCESS, "finished", now),
        ]
        return await self._store.jobs.close(
            job.id,
            totals=totals,
            summed=summed,
            completed_at=now,
            control_group_csv_path=path,
            events=events,
            mail=DueMail(Kind.COMPLETED, now) if self._mails else None,
        )

    async def _found_nobody(self, job: Job, totals: Totals) -> bool:
        if not job.csv_path or not totals.unknown or job.status is not JobStatus.RUNNING:
            return False
        plan = await self._store.files.plan(job.file_plan_id)
        return plan is not None and totals.unknown == plan.users

    async def _stop(self, job: Job, totals: Totals) -> None:
        """A file in which nobody is known is a mistake, and nothing that was completed."""
        now = self._clock.now_ns()
        failure = f"none of the {totals.unknown:,} users in the file has a device"
        await self._store.jobs.move(
            job.id,
            to=JobStatus.STOPPED,
            only=STOPPABLE,
            at=now,
            failure=failure,
            events=[Event(SEND, EventState.FAIL, failure, now)],
        )

    async def _control_group(self, job: Job) -> str:
        """Where the file of the users stands whom the job held out."""
        path = f"{self._blobs.bucket}/{self._control_group_folder}/job-{job.id}.csv"
        await self._blobs.write(path, self._lines(job))
        return path

    async def _lines(self, job: Job) -> AsyncIterator[bytes]:
        yield _lines_of(_HEADER)
        repeats = Repeats()
        async for batch in self._store.batches.settled(job.id):
            if batch.receipt.held_out:
                users = await self._store.held_out.of(batch)
                # Somebody's devices may stand in several batches.
                repeated = repeats.mark(hashes_of([user.encode() for user in users]))
                yield _lines_of([user for user, again in zip(users, repeated, strict=True) if not again])

    async def _end_plan(self, job_id: str) -> None:
        """Put the end behind the last batch, so that a planner that still cuts adds nothing to a closed job."""
        while True:
            match await self._store.batches.last(job_id):
                case PlanEnd(ordinal=end):
                    await self._store.jobs.end_plan(job_id, end=end)
                    return
                case last:
                    await self._store.batches.add_end(job_id, 0 if last is None else last.ordinal + 1)


def _lines_of(users: Sequence[str]) -> bytes:
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows([user] for user in users)
    return lines.getvalue().encode()
