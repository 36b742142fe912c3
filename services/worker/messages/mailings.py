"""The messages of one job, prepared once for all its batches: the templates, and the columns that it reads."""

from cachetools import LRUCache
from msgspec import Struct

from shared.audience.recipient_tables import RecipientTables
from shared.domain.audience.csv_header import Header
from shared.domain.errors import Invalid, Unavailable
from shared.domain.jobs.jobs import Job
from shared.domain.messages.jobs import MESSAGE_SERVICE, MessageOptions, Resending, options_of
from shared.domain.messages.rendering import MessageTexts
from shared.store import Store

_REMEMBERED_JOBS = 16


class MessagesOfJob(Struct, frozen=True):
    """A job with its texts; its file has this `header`, or its table these `columns`."""

    job: Job
    options: MessageOptions
    texts: MessageTexts
    header: Header | None
    columns: tuple[str, ...]
    resending: Resending


class Mailings:
    """The prepared messages of recently sent jobs."""

    def __init__(self, store: Store, tables: RecipientTables) -> None:
        self._store = store
        self._tables = tables
        self._mailings: LRUCache[tuple[str, int], MessagesOfJob] = LRUCache(_REMEMBERED_JOBS)

    async def prepare(self, job_key: str) -> MessagesOfJob:
        """The messages of this job.

        Raises:
            Invalid: its file or its table cannot be read any more.
            Unavailable: the job is gone or of another kind, or a server is away.
        """
        resending = await self._store.message_jobs.get_resending(job_key)
        known = self._mailings.get((job_key, resending.round))
        if known is None:
            known = self._mailings[job_key, resending.round] = await self._prepare(job_key, resending)
        return known

    async def _prepare(self, job_key: str, resending: Resending) -> MessagesOfJob:
        job = await self._store.jobs.get(job_key)
        if job is None or job.service != MESSAGE_SERVICE:
            raise Unavailable(f"the job {job_key} is gone or its batches are sent by another stage")
        options = options_of(job)
        texts = MessageTexts(job.plan.templates, job.context, locale=options.locale)
        header = await self._read_header(job) if job.csv_path else None
        columns = await self._tables.columns(job.table) if header is None else header.names
        return MessagesOfJob(job, options, texts, header, columns, resending)

    async def _read_header(self, job: Job) -> Header:
        plan = await self._store.files.plan(job.file_plan_id)
        if plan is None or plan.header is None:
            raise Invalid("the plan knows no header of the file", field="csvPath")
        return plan.header
