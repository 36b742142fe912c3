"""Messages as a kind of job: recipients are read from named columns, and a credential sends the batches at its rate.

An ended job can be reopened: messages that failed, were not sent or are unknown are sent under their old ids. The
job is reopened first and keeps its age; then its batches return to its plan; only then may it end again. If a
process dies in between, the job says so (`Job.reopening`), and upkeep does the rest.
"""

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.audience.rules.columns import Chosen, Header, NamedColumns, choose
from shared.core.errors import Conflict, Invalid
from shared.jobs.kinds import JobKind, Written
from shared.jobs.rules.events import Doer, Event, EventState
from shared.jobs.rules.jobs import Job, Standing
from shared.messages.feeding import CredentialFeed
from shared.messages.rules.jobs import MESSAGE_SERVICE, Duplicates, MessageCounts, options_of
from shared.messages.rules.ledger import MessageState
from shared.messages.rules.singles import SendMessages
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.store import Store

if TYPE_CHECKING:
    from shared.drivers.postgres.recipient_tables import RecipientTables

RETRIED = "job_retried"


class JobRetry:
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
            return Conflict("another request retried the job; read it and try again", field="jobId")
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


_FORGOTTEN_AT_ONCE = 1_000


class MessageKind(JobKind):
    """Jobs of messages: they are fed through their credentials. A worker shows every two seconds that it is still
    sending a batch."""

    batch_task = SendMessages
    keeps_batches = True
    silence = timedelta(seconds=10)

    def __init__(
        self, store: Store, load_tables: "Callable[[], RecipientTables]", feed: CredentialFeed, retry: JobRetry
    ) -> None:
        self._store = store
        self._load_tables = load_tables
        self._feed = feed
        self._retry = retry

    @property
    def services(self) -> dict[str, str]:
        return {MESSAGE_SERVICE: "messages"}

    def recipients_per_part(self, job: Job) -> int:
        return options_of(job).batch_size

    def batch_size(self, job: Job, most: int) -> int:
        return self.recipients_per_part(job)

    def named_columns(self, job: Job) -> NamedColumns:
        from shared.messages.rules.recipients import repeat_form  # with all numbers of the world: workers come here
        from shared.messages.rules.rendering import MessageTexts

        options = options_of(job)

        def choose_checked(header: Header) -> Chosen:
            MessageTexts(job.plan.templates, job.context, locale=options.locale).check_filled(header.names)
            return choose(header, options.recipient_column, ())

        return NamedColumns(
            choose_checked,
            normalize=repeat_form(options.channel, options.default_region),
            once=options.duplicates is Duplicates.ONCE,
            most=options.max_recipients,
            ids=options.recipient_column,
        )

    async def feed(self, standing: Standing) -> None:
        await self._feed.feed_credential(standing.credential_id)

    async def end_owner(self, owner: str) -> None:
        await self._store.messages.end_session(owner)

    async def drain(self, job: Job) -> None:
        await self._feed.drain(job)

    async def reopen(self, job: Job) -> None:
        await self._retry.go_on(job)

    async def prepare(self, job: Job) -> None:
        from shared.messages.rules.rendering import MessageTexts

        options = options_of(job)
        texts = MessageTexts(job.plan.templates, job.context, locale=options.locale)
        if job.csv_path:
            return
        columns = await self._load_tables().columns(job.table)
        if options.recipient_column not in columns:
            reason = f'table "{job.table}" has no column "{options.recipient_column}"'
            raise Invalid(reason, field="recipientColumn", value=options.recipient_column)
        texts.check_filled(columns)

    async def write_at_end(self, job: Job) -> Written:
        await self._store.kept_ledgers.begin_keeping(job.key)
        return Written()

    async def forget_some(self, job: Job) -> bool:
        return await self._store.kept_ledgers.remove_some(job.incarnation, limit=_FORGOTTEN_AT_ONCE)
