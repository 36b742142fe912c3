"""Push as a kind of job: its records go to a Kafka topic, and its control group to a file."""

import asyncio

from shared.domain.jobs.filling import check_filled
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.tasks import SendBatch
from shared.domain.push.records import SERVICES
from shared.domain.push.sizes import fitting_records
from shared.domain.push.topics import topic_name
from shared.flow.jobs.kinds import JobKind, Written
from shared.flow.push.control_group import ControlGroupFile
from shared.runtime.settings import StreamSettings
from shared.stream import Stream


class PushKind(JobKind):
    """The steps that push jobs do in their own way."""

    batch_task = SendBatch

    def __init__(self, stream: Stream, control_group: ControlGroupFile, settings: StreamSettings) -> None:
        self._stream = stream
        self._control_group = control_group
        self._settings = settings

    @property
    def services(self) -> dict[str, str]:
        return {name: service.platform for name, service in SERVICES.items()}

    def recipients_per_part(self, job: Job) -> int:
        return fitting_records(job)

    async def prepare(self, job: Job) -> None:
        most = self._settings.max_record_bytes
        await asyncio.to_thread(
            check_filled, job.plan.templates, job.context, job.metadata, most=most, field="template"
        )
        topic = topic_name(self._settings.topic_template, job.app_name, job.service)
        await self._stream.setup({topic: self._settings.push_topic_partitions})

    async def write_at_end(self, job: Job) -> Written:
        return await self._control_group.write(job)
