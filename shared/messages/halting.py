"""Holding a job whose messages bounce, because after many hard bounces providers stop trusting its sender.

A job is looked at once a second at most. Bounces from before a hold do not count after the job is resumed.

A credential that its provider has rejected has a due mail, stored by the move itself, sent under a lease, and
removed after sending. It is sent twice only if a process dies in between, with the same Message-ID.
"""

import time
from datetime import timedelta

import structlog
from cachetools import LRUCache

from shared.core.errors import Invalid, Unauthorized, Unavailable
from shared.jobs.rules.events import SEND, TRIP, DueMail, Event, EventState, Milestone
from shared.jobs.rules.mails import Mailing, MailKind
from shared.messages.rules.credentials import Credential, write_rejection
from shared.messages.rules.jobs import MESSAGE_SERVICE, count_bounces, is_to_be_held, options_of
from shared.providers.mail import Mail
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.runtime.loops import Swept
from shared.runtime.metrics import JOBS_TRIPPED, MAILS
from shared.store import Store

log = structlog.get_logger(__name__)
_REMEMBERED = 10_000
_LOOK_SECONDS = 1.0


class BounceBreaker:
    """Holds jobs with too many bounces. An extra look does no harm. `role` is the role of the process."""

    def __init__(self, store: Store, clock: Clock, *, role: str, mails: bool) -> None:
        self._store = store
        self._clock = clock
        self._role = role
        self._mails = mails
        self._looked_at: LRUCache[str, float] = LRUCache(_REMEMBERED)

    async def look(self, job_key: str) -> bool:
        now = time.monotonic()
        if now - self._looked_at.get(job_key, -_LOOK_SECONDS) < _LOOK_SECONDS:
            return False
        self._looked_at[job_key] = now
        job = await self._store.jobs.view(job_key)
        if job is None or job.service != MESSAGE_SERVICE or not job.standing.feeds:
            return False
        halt = options_of(job).halt
        if halt is None:
            return False
        counted = count_bounces((await self._store.message_sums.count(job.key)).tally)
        forgiven = await self._store.message_jobs.get_forgiven(job.key)
        since = counted.without(forgiven)
        if not is_to_be_held(since, halt):
            return False
        await fault("halt.before_move")
        message = f"{since.bounced:,} of {since.outcomes:,} answered messages bounced or were refused (haltOn)"
        at = self._clock.now_ns()
        held = await self._store.message_jobs.hold(
            job.key,
            forgiven=counted,
            still_forgiven=forgiven,
            at=at,
            events=[Event(SEND, EventState.FAIL, message, at)],
            mail=DueMail(MailKind.TRIPPED, at) if self._mails else None,
            milestone=Milestone(TRIP, await self._store.now(), self._role, message),
        )
        if held is None:
            return False
        JOBS_TRIPPED.inc()
        log.warning("job held", job_id=job.id, reason=message)
        return True


INTERVAL_SECONDS = 5.0
_OLDEST = timedelta(days=1)


class RejectionMails:
    """Sends mails about rejected credentials; a mail that is a day old is dropped."""

    def __init__(self, store: Store, mail: Mail, mailing: Mailing, *, lease: timedelta) -> None:
        self._store = store
        self._mail = mail
        self._mailing = mailing
        self._lease = lease

    async def run_once(self) -> Swept:
        """Send due mails. A mail that cannot be sent now is tried again after its lease."""
        claimed = 0
        while self._mail.delivers:
            now = await self._store.now()
            credential = await self._store.credentials.lease_mail(now=now, until=now + self._lease)
            if credential is None:
                break
            claimed += 1
            if credential.is_rejected and credential.updated_at > now - _OLDEST:
                MAILS.labels(await self._deliver(credential)).inc()
            await self._store.credentials.end_mail(credential.id, until=now + self._lease)
        return Swept(claimed=claimed)

    async def _deliver(self, credential: Credential) -> str:
        app = await self._store.apps.get(credential.app_id)
        try:
            letter = write_rejection(credential, credential.app_id if app is None else app.name, self._mailing)
            if letter is None:
                return "unwanted"
            await self._mail.send(letter)
        except Invalid as error:
            log.error("mail refused", credential=credential.id, reason=str(error))
            return "refused"
        except Unauthorized as error:
            raise Unavailable(str(error)) from error
        return "sent"
