"""Holding a job whose messages bounce, because after many hard bounces providers stop trusting its sender.

A job is looked at once a second at most. Bounces from before a hold do not count after the job is resumed.
"""

import time

import structlog
from cachetools import LRUCache

from shared.domain.jobs.events import SEND, TRIP, DueMail, Event, EventState, Milestone
from shared.domain.jobs.mails import MailKind
from shared.domain.messages.halting import count_bounces, is_to_be_held
from shared.domain.messages.jobs import MESSAGE_SERVICE, options_of
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.runtime.metrics import JOBS_TRIPPED
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
        """Returns whether this call held the job."""
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
