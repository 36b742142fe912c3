"""Reopening an ended job: messages that failed, were not sent or are unknown are sent under their old ids.

The job is reopened first and keeps its age; then its batches return to its plan; only then may it end again. If a
process dies in between, the job says so (`Job.reopening`), and upkeep does the rest.
"""

from collections.abc import Collection

from shared.domain.errors import Conflict
from shared.domain.jobs.events import Doer, Event, EventState
from shared.domain.jobs.jobs import Job
from shared.domain.messages.figures import MessageCounts
from shared.domain.messages.jobs import options_of
from shared.domain.messages.ledger import MessageState
from shared.flow.messages.feeding import CredentialFeed
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.store import Store

RETRIED = "job_retried"


class JobRetry:
    """Reopens jobs."""

    def __init__(self, store: Store, feed: CredentialFeed, clock: Clock) -> None:
        self._store = store
        self._feed = feed
        self._clock = clock

    async def retry(self, job: Job, states: Collection[MessageState], *, by: Doer) -> Job:
        """Send the job's messages in these states again. Raises `Conflict` if the job has not ended or is a dry run; it
        has no messages in these states, or some would stay unsent; its messages are removed, its credential is gone or
        no longer shared; or another request was faster."""
        if options_of(job).dry_run:
            raise Conflict("a dry run has sent nothing that could be sent again", field="jobId")
        await self._check_credential(job)
        if not job.open and await self._store.batches.get(job.key, 0) is not None:
            _check_states(await self._store.message_sums.count(job.key), states)
        now = self._clock.now_ns()
        said = ", ".join(sorted(state.value for state in states))
        event = Event(RETRIED, EventState.SUCCESS, said, now, by)
        reopened = await self._store.reopening.reopen_job(job, states, at=now, events=[event])
        if reopened is None:
            raise await self._explain(job)
        await fault("retry.after_job")
        await self.go_on(reopened)
        return reopened

    async def go_on(self, job: Job) -> None:
        """Put the batches of a job back that is being reopened. Safe to repeat, and without effect once it has ended
        again."""
        resending = await self._store.message_jobs.get_resending(job.key)
        now = await self._store.jobs.view(job.key)
        if now is None or not now.reopening or now.round != job.round:
            return
        await self._store.reopening.reopen_batches(job, resending.states)
        await fault("retry.after_batches")
        await self._store.reopening.end_reopening(job)
        await self._feed.feed_credential(job.credential_id)

    async def _check_credential(self, job: Job) -> None:
        """Count a use of the credential, so that it is not deleted meanwhile. Raises `Conflict` if the job cannot use
        it."""
        credential = await self._store.credentials.get(job.credential_id)
        if credential is None or not await self._store.credentials.note_use(job.credential_id):
            raise Conflict("the job's credential is gone", field="credential")
        if job.app_id not in credential.usable_by:
            raise Conflict("the app may not use the job's credential any more", field="credential")

    async def _explain(self, job: Job) -> Exception:
        now = await self._store.jobs.view(job.key)
        if now is None or now.round != job.round:
            return Conflict("somebody else has taken the job up again", field="jobId")
        if now.open:
            return Conflict(f"cannot retry {now.status or 'running'} job", field="status", value=now.status.value)
        return Conflict("the messages of this job are forgotten", field="jobId")


def _check_states(counts: MessageCounts, states: Collection[MessageState]) -> None:
    """Raise `Conflict` unless a retry in these states sends something and leaves nothing unsent, because the job would
    be `completed` with unsent messages."""
    there = {state: counts.by_state.get(state.value, 0) for state in (MessageState.FAILED, MessageState.UNKNOWN)}
    there[MessageState.UNSENT] = counts.unsent
    wanted = sum(there.get(state, 0) for state in states)
    unsent = 0 if MessageState.UNSENT in states else counts.unsent
    if not counts.planned or (wanted and not unsent):
        return
    if wanted:
        raise Conflict(f"the job has unsent messages ({unsent:,}): add unsent to states", field="states")
    asked = " or ".join(sorted(state.value for state in states))
    told = ", ".join(f"{count:,} {state.value}" for state, count in there.items() if count)
    hint = f"it has {told}: name these states" if told else "all were sent, or can never be"
    raise Conflict(f"the job has no {asked} messages; {hint}", field="states")
