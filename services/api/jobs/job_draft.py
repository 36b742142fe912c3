"""From the body of a POST to the job that it asks for: all that can be known to be wrong is said before a job is
stored.

The file of the users is only looked at; the planner reads it. A preview counts its rows.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress

from msgspec import Struct
from msgspec.structs import asdict, replace

from services.api.http.errors import fresh_id
from services.api.jobs import job_body
from services.api.jobs.job_body import AccountJobs, Foreseen, JobBody, read_body
from shared.accounts.rules.apps import App, check_not_deleting
from shared.audience.rules.audiences import Counted, File, table_name
from shared.audience.rules.columns import NORMAL_FORMS, Chosen, Header
from shared.audience.rules.csv_cuts import HEADER_IS_DATA, Slice, Slicer
from shared.audience.rules.zones import zone_starts
from shared.clock.rules.callbacks import JobCallback
from shared.core.errors import Invalid, NotFound, Unavailable
from shared.core.ids import Idempotency
from shared.drivers.blobs import Blobs
from shared.drivers.postgres import KEY, USER, Audience
from shared.jobs.kinds import JobKinds
from shared.jobs.moves import find_templates, fresh_incarnation
from shared.jobs.rules.events import DueMail
from shared.jobs.rules.groups import Group, make_group, of_push
from shared.jobs.rules.jobs import Job, JobStatus, Plan
from shared.jobs.rules.mails import arrival
from shared.jobs.rules.templates import Template, check_filled, check_tags
from shared.runtime.clock import Clock
from shared.store import Store

CHECKED_BYTES = 1024 * 1024
_ROWS = 10_000
_LOOK_UP_SECONDS = 2


class JobFiles:
    """Finds the files of jobs, and checks their beginnings. A file may have `max_bytes`."""

    def __init__(self, blobs: Blobs, audience: Audience, kinds: JobKinds, *, max_bytes: int) -> None:
        self._blobs = blobs
        self._audience = audience
        self._kinds = kinds
        self._max_bytes = max_bytes

    async def find(self, path: str) -> File:
        """The file. Raises `Invalid` for one that is missing, empty or too large, and `Unavailable`."""
        try:
            file = await self._blobs.stat(path)
        except NotFound as error:
            raise Invalid(error.reason, field="csvPath", value=path) from error
        if not file.size:
            raise Invalid("invalid csvPath: the file is empty", field="csvPath", value=path)
        if file.size > self._max_bytes:
            reason = f"invalid csvPath: the file has {file.size:,} bytes, {self._max_bytes:,} are allowed"
            raise Invalid(reason, field="csvPath", value=path)
        return file

    async def check(self, job: Job, file: File) -> list[str]:
        """Read the first `CHECKED_BYTES` of the file as the planner of the job, which has its templates, would. Returns
        warnings. Raises `Invalid`, with byte and line, if the planner would stop the job over these bytes."""
        named = self._kinds.of(job.service).named_columns(job)
        upto = min(file.size, CHECKED_BYTES)
        async with aclosing(self._blobs.read(file, 0, upto)) as chunks:
            content = b"".join([chunk async for chunk in chunks])
        choose = None if named is None else named.choose
        slicer = await asyncio.to_thread(_read_rows, content, choose, whole=upto == file.size)
        lacks_header = slicer.lacks_header or (named is None and await self._is_user(job.table, slicer.title))
        return [HEADER_IS_DATA] if lacks_header else []

    async def _is_user(self, table: str, title: str) -> bool:
        """Whether a user has this id; `False` if the table is slow, because a warning must not delay the caller."""
        with suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(_LOOK_UP_SECONDS):
                return (await self._audience.count_users(table, [title])).users > 0
        return False


def _read_rows(content: bytes, choose: Callable[[Header], Chosen] | None, *, whole: bool) -> Slicer:
    slicer = Slicer(_ROWS, choose=choose, once=False)
    slicer.feed(content)
    if whole:
        slicer.finish()
    return slicer


SLICE_ROWS = 5_000


class FileCounting:
    def __init__(self, audience: Audience, blobs: Blobs) -> None:
        self._audience = audience
        self._blobs = blobs

    async def count(self, table: str, file: File, *, seconds: float) -> Counted:
        """The counts of the file's users in the table, or of as many as can be looked up in this time. Raises `Invalid`
        if a job over this file would fail."""
        slicer = Slicer(SLICE_ROWS, NORMAL_FORMS[await self._audience.user_type(table)])
        counted = Counted(total=file.size)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), aclosing(self._slices(file, slicer)) as slices:
                async for each in slices:
                    if not counted.scanned:
                        first = await self._audience.count_users(table, [slicer.title])
                        counted = replace(counted, lacks_header=first.users > 0)
                    found = await self._audience.count_users(table, each.users)
                    counted = counted.with_slice(found, repeated=each.repeated, upto=each.upto)
                counted = replace(counted, scanned=file.size, exact=True)
        return replace(counted, lacks_header=counted.lacks_header or slicer.lacks_header)

    async def _slices(self, file: File, slicer: Slicer) -> AsyncGenerator[Slice]:
        async with aclosing(self._blobs.read(file, 0, file.size)) as chunks:
            async for chunk in chunks:
                # A chunk of 100,000 ids takes a tenth of a second.
                for each in await asyncio.to_thread(slicer.feed, chunk):
                    yield each
        for each in await asyncio.to_thread(slicer.finish):
            yield each


class JobDraft(Struct, frozen=True):
    """A job, its templates, the file of its users as it was found, if any, and probable mistakes."""

    job: Job
    templates: Sequence[Template]
    file: File | None
    warnings: Sequence[str] = ()

    @property
    def with_templates(self) -> Job:
        """The job as its planner would begin it."""
        return replace(self.job, plan=Plan(templates=tuple(self.templates)))


class JobDrafts:
    def __init__(
        self,
        store: Store,
        audience: Audience,
        files: JobFiles,
        clock: Clock,
        account_jobs: AccountJobs,
        *,
        published_sign: bool,
        max_record_bytes: int,
        mails: bool,
        lenient: bool,
    ) -> None:
        self._store = store
        self._audience = audience
        self._files = files
        self._clock = clock
        self._account_jobs = account_jobs
        self._published_sign = published_sign
        self._max_record_bytes = max_record_bytes
        self._mails = mails
        self._lenient = lenient

    def read_body(self, content: bytes) -> JobBody:
        return read_body(content, lenient=self._lenient)

    async def prepare(
        self, app: App, names: tuple[str, ...], body: JobBody, created_by: str, key: Idempotency | None
    ) -> JobDraft:
        """The job of either kind, and its warnings. Raises as `draft`, `AccountJobs.read` and `JobFiles.check` do."""
        if body.credential:
            draft = await self._draft_by_account(app, names, body, created_by, key)
        else:
            draft = await self.draft(app, names, body, created_by=created_by, key=key)
        warnings = [] if draft.file is None else await self._files.check(draft.with_templates, draft.file)
        return replace(draft, warnings=[*warnings, *([] if body.credential else self._warn(draft.job))])

    async def foresee(self, app: App, names: tuple[str, ...], body: JobBody, *, seconds: float) -> Foreseen:
        """The messages that a job with a credential would send. Raises as `draft` and `AccountJobs.read` do."""
        draft = await self._draft_by_account(app, names, body, created_by="", key=None)
        return await self._account_jobs.foresee(draft.with_templates, seconds=seconds)

    async def draft(
        self, app: App, names: tuple[str, ...], body: JobBody, *, created_by: str, key: Idempotency | None
    ) -> JobDraft:
        job_body.check(body, now=self._clock.now_ns())
        table = table_name(app.name, body.service)
        templates = await find_templates(self._store, app.id, names, in_english=True)
        await asyncio.to_thread(self._check_texts, templates, body)
        job_body.check_localized(body)
        await self._audience.check(table, body.filters, walks=USER if body.csv_path else KEY)
        file = await self._files.find(body.csv_path) if body.csv_path else None
        return JobDraft(self._with_mail(self._make_job(app, names, body, created_by, key)), templates, file)

    async def draft_due(self, callback: JobCallback, app: App, made_by: str) -> Job:
        """The job that a schedule starts now. Raises as `prepare` does."""
        body = self.read_body(callback.payload.encode())
        job_body.check_repeated(body)
        if callback.expires_after_seconds:
            body = replace(body, expires_at=self._clock.now_ns() + int(callback.expires_after_seconds * 10**9))
        return (await self.prepare(app, job_body.read_names(callback.template), body, made_by, None)).job

    async def confirm(self, job: Job) -> None:
        """Look once more, now that the job is stored, at its app and account. Raises `Conflict` where one is gone."""
        check_not_deleting(await self._store.apps.get(job.app_id), job.app_id)
        if job.credential_id:
            await self._account_jobs.confirm(job)

    def group(self, job: Job) -> Group:
        now, sign = self._clock.now_ns(), self._published_sign
        zones = zone_starts(job.starts_at, now, job.past_time_strategy, published_sign=sign)
        return make_group(job, zones, published_sign=sign)

    async def _draft_by_account(
        self, app: App, names: tuple[str, ...], body: JobBody, created_by: str, key: Idempotency | None
    ) -> JobDraft:
        job_body.check(body, now=self._clock.now_ns())
        templates, own = await self._account_jobs.read(app, names, body)
        file = await self._files.find(body.csv_path) if body.csv_path else None
        job = replace(self._make_job(app, names, body, created_by, key), **asdict(own))
        return JobDraft(self._with_mail(job), templates, file)

    def _warn(self, job: Job) -> list[str]:
        group = [(each.zone, each.starts_at) for each in self.group(job).zones] if job.localized else []
        found = of_push(job, group, None, published_sign=self._published_sign, now_ns=self._clock.now_ns())
        return [notice.message for notice in found]

    def _check_texts(self, templates: Sequence[Template], body: JobBody) -> None:
        if not self._lenient:
            check_tags(templates, body.context)
        check_filled(templates, body.context, body.metadata, most=self._max_record_bytes, field="template")

    def _with_mail(self, job: Job) -> Job:
        return replace(job, mails=(DueMail(arrival(job), job.created_at),)) if self._mails else job

    def _make_job(
        self, app: App, names: tuple[str, ...], body: JobBody, created_by: str, key: Idempotency | None
    ) -> Job:
        now = self._clock.now_ns()
        own_id = job_body.read_id(body.id) or fresh_id(now)
        return Job(
            id=own_id,
            incarnation=fresh_incarnation(),
            app_id=app.id,
            app_name=app.name,
            service=body.service,
            template_names=names,
            created_by=created_by,
            group_id=own_id if body.localized else fresh_id(now),
            name=body.name,
            filters=body.filters,
            context=body.context,
            metadata=body.metadata,
            past_time_strategy=body.past_time_strategy,
            csv_path=body.csv_path,
            control_group=body.control_group,
            localized=body.localized,
            expires_at=body.expires_at,
            starts_at=body.starts_at,
            status=JobStatus.SCHEDULED if body.starts_at else JobStatus.RUNNING,
            created_at=now,
            updated_at=now,
            idempotency=key,
        )
