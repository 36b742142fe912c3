"""Messages as a kind of job: recipients are read from named columns, and a credential sends the batches at its rate."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.domain.audience.csv_header import Chosen, Header, choose
from shared.domain.audience.named_columns import NamedColumns
from shared.domain.errors import Invalid
from shared.domain.jobs.jobs import Job, Standing
from shared.domain.messages.jobs import MESSAGE_SERVICE, Duplicates, options_of
from shared.domain.messages.tasks import SendMessages
from shared.flow.jobs.feeders import BatchFeeder
from shared.flow.jobs.kinds import JobKind, Written
from shared.flow.messages.feeding import CredentialFeed
from shared.flow.messages.retrying import JobRetry
from shared.store import Store

if TYPE_CHECKING:  # it brings the driver along, and not every process reads tables
    from shared.audience.recipient_tables import RecipientTables


_FORGOTTEN_AT_ONCE = 1_000


class MessageFeeder(BatchFeeder):
    """Feeds the credentials of jobs. A worker shows every two seconds that it is still sending a batch."""

    silence = timedelta(seconds=10)

    def __init__(self, store: Store, feed: CredentialFeed, retry: JobRetry) -> None:
        self._store = store
        self._feed = feed
        self._retry = retry

    async def feed(self, standing: Standing) -> None:
        await self._feed.feed_credential(standing.credential_id)

    async def end_owner(self, owner: str) -> None:
        await self._store.messages.end_session(owner)

    async def drain(self, job: Job) -> None:
        await self._feed.drain(job)

    async def reopen(self, job: Job) -> None:
        await self._retry.go_on(job)


class MessageKind(JobKind):
    """The steps that jobs of messages do in their own way."""

    batch_task = SendMessages
    keeps_batches = True

    def __init__(self, store: Store, load_tables: "Callable[[], RecipientTables]", feeder: MessageFeeder) -> None:
        self._store = store
        self._load_tables = load_tables
        self.feeder = feeder

    @property
    def services(self) -> dict[str, str]:
        return {MESSAGE_SERVICE: "messages"}

    def recipients_per_part(self, job: Job) -> int:
        return options_of(job).batch_size

    def batch_size(self, job: Job, most: int) -> int:
        return self.recipients_per_part(job)

    def named_columns(self, job: Job) -> NamedColumns:
        from shared.domain.messages.recipients import repeat_form  # with all numbers of the world: workers come here
        from shared.domain.messages.rendering import MessageTexts

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

    async def prepare(self, job: Job) -> None:
        from shared.domain.messages.rendering import MessageTexts

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
