"""Push as a kind of job: its records go to a Kafka topic, and its control group to a file.

The file lists the users who were held out, and is written once all batches are settled. The job does not wait for
it for ever. A write that is refused for good (access denied, no such bucket) is given up at once. Other failures
are retried for a day from the first one, which is among the job's events, so that users see what the job waits for.
"""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import structlog

from shared.core.errors import Invalid, Unavailable
from shared.drivers.blobs import Blobs
from shared.drivers.kafka import Stream
from shared.jobs.kinds import JobKind, Written
from shared.jobs.rules.events import FINISH, Event, EventState
from shared.jobs.rules.jobs import Job, SendBatch
from shared.jobs.rules.templates import check_filled
from shared.push.rules.records import SERVICES, fitting_records, topic_name
from shared.runtime.clock import Clock
from shared.runtime.server_settings import StreamSettings
from shared.store import Store

log = structlog.get_logger(__name__)
_HEADER = ("controlGroupUserIds",)
_TRIED_FOR = timedelta(days=1)


class _StoreAway(Unavailable):
    """The store is away, so the failure is not that of the file."""


class ControlGroupFile:
    def __init__(self, store: Store, blobs: Blobs, clock: Clock, *, folder: str) -> None:
        self._store = store
        self._blobs = blobs
        self._clock = clock
        self._folder = folder

    async def write(self, job: Job) -> Written:
        """Write the file; returns the final result. Raises `Unavailable` as long as another try makes sense."""
        if not job.control_group:
            return Written()
        path = f"{self._blobs.bucket}/{self._folder}/job-{job.id}.csv"
        failure = f"the control group could not be written to {path}: "
        try:
            await self._blobs.write(path, self._lines(job))
        except _StoreAway:
            raise
        except Invalid as error:
            failure += error.reason.removeprefix(f"{path}: ")
        except Unavailable as error:
            failure += str(error)
            if not await self._is_tried_long_enough(job, failure):
                raise
        else:
            return Written(path)
        log.error("file of a control group given up", job_id=job.id, reason=failure)
        return Written(failure=failure)

    async def _is_tried_long_enough(self, job: Job, failure: str) -> bool:
        """Whether the first failure is long past; if there was none, note this one."""
        now = self._clock.now_ns()
        first = next((event.at for event in job.events if event.stage == FINISH), None)
        if first is None:
            waits = f"{failure}; it is tried again for {_TRIED_FOR // timedelta(hours=1)} hours"
            await self._store.jobs.note_first(job.key, Event(FINISH, EventState.FAIL, waits, now))
            return False
        return now - first >= _TRIED_FOR // timedelta(microseconds=1) * 1_000

    async def _lines(self, job: Job) -> AsyncIterator[bytes]:
        try:
            async for lines in self._read_stored(job):
                yield lines
        except Unavailable as error:
            raise _StoreAway(str(error)) from error

    async def _read_stored(self, job: Job) -> AsyncIterator[bytes]:
        from shared.audience.rules.repeats import Repeats, hashes_of  # with numpy: only workers come here

        yield _lines_of(_HEADER)
        repeats = Repeats()
        async for batch in self._store.batch_sums.read_settled(job.key):
            if batch.receipt.held_out:
                users = await self._store.held_out.read(batch)
                # The devices of a user may be in several batches.
                repeated = repeats.mark(hashes_of([user.encode() for user in users]))
                yield _lines_of([user for user, again in zip(users, repeated, strict=True) if not again])


def _lines_of(users: Sequence[str]) -> bytes:
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows([user] for user in users)
    return lines.getvalue().encode()


class PushKind(JobKind):
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
