"""The ends of jobs: closing one whose batches are all settled, the grace of a failure that only people can repair, and
the mails that moves of jobs made due.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import structlog
from cachetools import LRUCache
from msgspec import Struct

from services.worker.consumer import Stage
from shared.clock.store_occurrences import fresh_token
from shared.core.errors import Denied, Invalid, Unauthorized, Unavailable
from shared.core.instants import from_ns
from shared.jobs.feed import Feed
from shared.jobs.finish import Finish
from shared.jobs.rules.events import READ_FILE, DueMail, Event, EventState
from shared.jobs.rules.jobs import FinishJob, Job, SendMail
from shared.jobs.rules.mails import Mailing, MailKind, write_letter
from shared.jobs.watch import sum_up
from shared.providers.mail import Mail
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.runtime.metrics import JOBS_CLOSED, MAILS
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)
_REMEMBERED = 1_000


class _Failures(Struct, frozen=True):
    """The first and the last failure of a job's file or table."""

    first: datetime
    last: datetime


class Grace:
    """Remembers since when each job's file or table has failed in this worker."""

    def __init__(self, store: Store, clock: Clock, *, seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._lasts = timedelta(seconds=seconds)
        self._failures: LRUCache[tuple[str, str], _Failures] = LRUCache(_REMEMBERED)

    @asynccontextmanager
    async def give(self, job: Job, *, stage: str) -> AsyncIterator[None]:
        """Work at this stage of the job, which needs its file or its table. Raises `Unavailable` (`Denied` for a file)
        to try again, `Invalid` once it has failed for the whole time of grace, or if it is wrong in another way."""
        table = job.table
        try:
            yield
        except Denied as error:
            reason = f"{job.csv_path}: {str(error).removeprefix(f'{job.csv_path}: ')}"
            await self._judge(job, job.csv_path, READ_FILE, Invalid(reason, field="csvPath"))
            raise
        except Invalid as error:
            if not _is_about_table(error):
                raise
            await self._judge(job, table, stage, error)
            raise Unavailable(error.reason) from error
        self._failures.pop((job.key, job.csv_path), None)
        self._failures.pop((job.key, table), None)

    async def _judge(self, job: Job, thing: str, stage: str, error: Invalid) -> None:
        now = self._clock.now()
        earlier = self._failures.get((job.key, thing))
        first = now if earlier is None or now - earlier.last > self._lasts else earlier.first
        self._failures[job.key, thing] = _Failures(first, now)
        if now - first >= self._lasts:
            raise Invalid(f"{error.reason}, for {self._minutes()}", field=error.field) from error
        waits = f"{error.reason}; it is tried again for {self._minutes()}"
        await self._store.jobs.note_first(job.key, Event(stage, EventState.FAIL, waits, self._clock.now_ns()))

    def _minutes(self) -> str:
        return f"{self._lasts / timedelta(minutes=1):g} minutes"


def _is_about_table(error: Invalid) -> bool:
    """Whether the push database lacks something that the job needs."""
    field = error.field or ""
    return field == "app" or field.partition(".")[0] == "filters"


class Finisher(Stage[FinishJob]):
    """The stage behind `push.finish`."""

    task = FinishJob

    def __init__(self, finish: Finish, feed: Feed, *, in_flight: int) -> None:
        self.in_flight = in_flight
        self._finish = finish
        self._feed = feed

    async def run(self, task: FinishJob) -> None:
        job = await self._finish.job(task.job_id)
        if job is not None and job.totals is not None:
            JOBS_CLOSED.labels(job.status).inc()
            await self._feed.mails(job)
            log.info("job closed", job_id=job.id, status=job.status, sent=job.totals.sent, failed=job.totals.failed)

    async def put_off(self, task: FinishJob) -> None:
        await self._feed.put_off(task)

    async def give_up(self, task: FinishJob, reason: str) -> None:
        """Leave it to upkeep: only the sum is missing."""
        log.error("job cannot be closed", job_id=task.job_id, reason=reason)


_OLDEST = timedelta(days=1)
_REMEMBERED_MAILS = 1_000


class Mailer(Stage[SendMail]):
    """Sends mails; a mail is dropped without a mail server, or when it is a day old."""

    task = SendMail
    in_flight = 2

    def __init__(
        self, store: Store, mail: Mail, feed: Feed, time: DatabaseTime, mailing: Mailing, *, lease: timedelta
    ) -> None:
        self._store = store
        self._mail = mail
        self._feed = feed
        self._time = time
        self._mailing = mailing
        self._lease = lease
        self._sent: LRUCache[tuple[str, str, int], str] = LRUCache(_REMEMBERED_MAILS)

    async def run(self, task: SendMail) -> None:
        job = await self._store.jobs.view(task.job_id)
        due = next((mail for mail in job.mails if (mail.kind, mail.at) == (task.kind, task.at)), None) if job else None
        if job is None or due is None:
            return
        key = (job.key, due.kind, due.at)
        if key not in self._sent and self._mail.delivers:
            # If storing this fails now, this process still does not send the mail twice.
            self._sent[key] = await self._send_under_lease(job, due)
        await fault("mail.after_send")
        await self._store.mails.note_sent(job.key, due)
        await self._store.mails.release(job.key, self._sent.get(key, ""))

    async def put_off(self, task: SendMail) -> None:
        await self._feed.put_off(task)

    async def give_up(self, task: SendMail, reason: str) -> None:
        log.error("mail given up", job_id=task.job_id, kind=task.kind, reason=reason)
        job = await self._store.jobs.view(task.job_id)
        for due in job.mails if job is not None else ():
            if (due.kind, due.at) == (task.kind, task.at):
                await self._store.mails.note_sent(task.job_id, due)

    async def _send_under_lease(self, job: Job, due: DueMail) -> str:
        """Send the mail under a lease; returns the token of that lease, which is still held."""
        token, now = fresh_token(), await self._time.now()
        if not await self._store.mails.lease(job.key, due, token, now=now, until=now + self._lease):
            raise Unavailable("another worker sends a mail about this job")
        try:
            MAILS.labels(await self._deliver(job, due)).inc()
        except BaseException:
            await self._store.mails.release(job.key, token)
            raise
        return token

    async def _deliver(self, job: Job, due: DueMail) -> str:
        totals = (await sum_up(self._store, [job]))[job.id]
        counts = await self._store.message_sums.count(job.key) if job.credential_id else None
        reasons = None if counts is None else counts.reasons
        states = None if counts is None else {"unsent": counts.unsent} | counts.by_state
        kind, mailing = MailKind(due.kind), self._mailing
        try:
            letter = write_letter(
                kind, job, totals, at_ns=due.at, mailing=mailing, by=due.by, reasons=reasons, states=states
            )
            if letter is None:
                return "unwanted"
            await self._mail.send(letter)
        except (Invalid, ValueError) as error:
            log.error("mail refused", job_id=job.id, kind=due.kind, reason=str(error))
            return "refused"
        except (Unauthorized, Unavailable) as error:
            if from_ns(due.at) < self._time.reckon() - _OLDEST:
                log.error("mail given up", job_id=job.id, kind=due.kind, reason=str(error))
                return "given up"
            raise Unavailable(str(error)) from error
        return "sent"
