"""The stage behind `push.mail`: sends the mails that moves of jobs made due.

A due mail is stored in its job by the move itself, sent under a short lease, so that two tasks send it once, and
removed after sending. It is sent twice only if a process dies in between or the mail server's answer is lost, with the
same Message-ID.
"""

from datetime import timedelta

import structlog
from cachetools import LRUCache

from services.worker.stage import Stage
from shared.domain.errors import Invalid, Unauthorized, Unavailable
from shared.domain.instants import from_ns
from shared.domain.jobs.events import DueMail
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.mails import Mailing, MailKind, write_letter
from shared.domain.jobs.tasks import SendMail
from shared.flow.jobs.feed import Feed
from shared.flow.jobs.progress import sum_up
from shared.flow.time import DatabaseTime
from shared.providers.mail import Mail
from shared.runtime.faults import fault
from shared.runtime.metrics import MAILS
from shared.store import Store
from shared.store.clock.occurrences import fresh_token

log = structlog.get_logger(__name__)

_OLDEST = timedelta(days=1)
_REMEMBERED_MAILS = 1_000


class Mailer(Stage[SendMail]):
    """Sends mails; a mail is dropped without a mail server, or when it is a day old."""

    task = SendMail
    in_flight = 2

    def __init__(
        self,
        store: Store,
        mail: Mail,
        feed: Feed,
        time: DatabaseTime,
        mailing: Mailing,
        *,
        lease: timedelta,
    ) -> None:
        self._store = store
        self._mail = mail
        self._feed = feed
        self._time = time
        self._mailing = mailing
        self._lease = lease
        self._sent: LRUCache[tuple[str, str, int], str] = LRUCache(_REMEMBERED_MAILS)

    async def run(self, task: SendMail) -> None:
        """Send the mail if it is still due."""
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
        """Drop the mail."""
        log.error("mail given up", job_id=task.job_id, kind=task.kind, reason=reason)
        job = await self._store.jobs.view(task.job_id)
        for due in job.mails if job is not None else ():
            if (due.kind, due.at) == (task.kind, task.at):
                await self._store.mails.note_sent(task.job_id, due)

    async def _send_under_lease(self, job: Job, due: DueMail) -> str:
        """Send the mail under a lease; returns the token of that lease, which is still held."""
        token, now = fresh_token(), await self._time.now()
        if not await self._store.mails.lease(job.key, due, token, now=now, until=now + self._lease):
            raise Unavailable("somebody else sends a mail about this job")
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
            if self._is_old(due):
                log.error("mail given up", job_id=job.id, kind=due.kind, reason=str(error))
                return "given up"
            raise Unavailable(str(error)) from error
        return "sent"

    def _is_old(self, due: DueMail) -> bool:
        return from_ns(due.at) < self._time.reckon() - _OLDEST
