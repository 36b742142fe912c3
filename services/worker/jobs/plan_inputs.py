"""The inputs of a plan: its templates and the version of its source, fixed before the first cut."""

from msgspec.structs import replace

from shared.audience import Audience
from shared.audience.recipient_tables import RecipientTables
from shared.blobs import Blobs
from shared.domain.audience.named_columns import NamedColumns
from shared.domain.audience.sources import File, PushTable, Source
from shared.domain.errors import Denied, Hidden, Invalid, NotFound
from shared.domain.jobs.events import PLAN, READ_FILE, Event, EventState
from shared.domain.jobs.jobs import Job, Plan
from shared.domain.jobs.templates import Template
from shared.flow.jobs.kinds import JobKinds
from shared.runtime.clock import Clock
from shared.store import Store


class PlanInputs:
    """Fixes the inputs of a job's plan, once."""

    def __init__(
        self,
        store: Store,
        audience: Audience,
        blobs: Blobs,
        kinds: JobKinds,
        clock: Clock,
        *,
        batch_size: int,
        max_file_bytes: int,
    ) -> None:
        self._store = store
        self._audience = audience
        self._recipients = RecipientTables.beside(audience)
        self._blobs = blobs
        self._kinds = kinds
        self._clock = clock
        self._batch_size = batch_size
        self._max_file_bytes = max_file_bytes

    async def fix(self, job: Job) -> Job:
        """The job with the inputs of its plan. Raises `Invalid`."""
        if job.plan.source is not None:
            return job
        templates = await self._templates(job)
        filled = replace(job, plan=Plan(templates=templates))
        await self._kinds.of(job.service).prepare(filled)
        source = await self._source(filled)
        stage = READ_FILE if isinstance(source, File) else PLAN
        events = [Event(stage, EventState.RUNNING, "starting", self._clock.now_ns())]
        begun = await self._store.jobs.begin_plan(job.key, source=source, templates=templates, events=events)
        return begun or await self._read_again(job)

    async def _source(self, job: Job) -> Source:
        """The source that the job reads. If its group is divided already, it is the one that the division has read."""
        division = await self._store.divisions.get(job.file_plan_id) if job.divided else None
        if division is not None:
            return division.source
        if job.csv_path:
            return await self._file(job)
        tables = self._audience if self.named_columns(job) is None else self._recipients
        return PushTable(await tables.highest(job.table))

    async def _file(self, job: Job) -> File:
        """The version of the file that all jobs of the group read."""
        try:
            file = await self._blobs.stat(job.csv_path)
        except Hidden as error:
            # The file was visible when the job was posted, so the access was withdrawn.
            raise Denied(error.reason) from error
        except NotFound as error:
            raise Invalid(error.reason, field="csvPath") from error
        if file.size > self._max_file_bytes:
            raise Invalid(f"the file has {file.size:,} bytes, {self._max_file_bytes:,} are allowed", field="csvPath")
        user_type = "" if self.named_columns(job) else await self._audience.user_type(job.table)
        plan = await self._store.files.begin(
            job.file_plan_id, file, cut_records=self.batch_size(job), user_type=user_type
        )
        return plan.file

    def batch_size(self, job: Job) -> int:
        """The recipients of a batch, or users of a file."""
        return self._kinds.of(job.service).batch_size(job, self._batch_size)

    def named_columns(self, job: Job) -> NamedColumns | None:
        """The columns of its file or table that the job reads by name, if any."""
        return self._kinds.of(job.service).named_columns(job)

    async def _read_again(self, job: Job) -> Job:
        found = await self._store.jobs.get(job.key)
        if found is None:
            raise Invalid("the job is gone", field="job")
        return found

    async def _templates(self, job: Job) -> tuple[Template, ...]:
        templates = await self._store.templates.find_named(job.app_id, job.template_names)
        for name in {*job.template_names} - {template.name for template in templates}:
            raise Invalid(f"No templates were found with name {name}", field="template")
        return tuple(templates)
