"""The sources of a plan's batches: a push table, a file of users, or the devices of a zone of a localized push."""

from collections.abc import AsyncGenerator
from typing import assert_never

from services.worker.jobs.cutting import PlannedBatch, TableCuts
from services.worker.jobs.distinct_cuts import DistinctCuts
from services.worker.jobs.dividing import Divider, ZoneCuts
from services.worker.jobs.file_cutting import FileCuts
from shared.audience import Audience
from shared.audience.recipient_tables import RecipientTables
from shared.blobs import Blobs
from shared.domain.audience.named_columns import NamedColumns
from shared.domain.audience.ranges import DeviceList, KeyRange
from shared.domain.audience.sources import File, PushTable
from shared.domain.jobs.batches import Batch
from shared.domain.jobs.jobs import Job
from shared.runtime.settings import WorkerSettings
from shared.store import Store


class Cuts:
    """Cuts the source of a job into batches."""

    def __init__(self, store: Store, audience: Audience, blobs: Blobs, worker: WorkerSettings) -> None:
        self._tables = TableCuts(audience, page_batches=worker.page_batches)
        recipients = RecipientTables.beside(audience)
        self._named_tables = TableCuts(recipients, page_batches=worker.page_batches)
        self._distinct = DistinctCuts(recipients, self._named_tables)
        self._files = FileCuts(store, blobs)
        divider = Divider(store, audience, blobs, self._files, step_rows=worker.divide_rows)
        self._zones = ZoneCuts(store, divider, page_batches=worker.page_batches)

    def pages(
        self, job: Job, last: Batch | None, size: int, named: NamedColumns | None = None
    ) -> AsyncGenerator[list[PlannedBatch]]:
        """The batches behind the last one, a page at a time; an empty page means that reading goes on. Raises
        `Invalid`."""
        first = 0 if last is None else last.ordinal + 1
        # A plan that a worker of an earlier version began continues in that version's way.
        if job.divided and (last is None or isinstance(last.range, DeviceList)):
            return self._zones.pages(job, first, size)
        match job.plan.source:
            case PushTable(highest):
                keys = None if last is None else last.range
                assert keys is None or isinstance(keys, KeyRange)
                if named is not None and named.once:
                    return self._distinct.pages(job, highest, keys, size, named)
                tables = self._tables if named is None else self._named_tables
                return tables.pages(job, highest, keys, size)
            case File():
                return self._files.pages(job.file_plan_id, first, zone=job.zone, named=named)
            case None:
                raise AssertionError("a plan is begun before it is cut")
            case source:
                assert_never(source)

    async def sum_up(self, job: Job, devices: int) -> tuple[int, list[str]]:
        """As `ZoneCuts.sum_up`."""
        return await self._zones.sum_up(job, devices)
