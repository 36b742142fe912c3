"""Cutting a table in which each recipient gets one message: rows of a batch that repeat an earlier row are noted in its
range.

The table is always read from its beginning, because only then repeats are known. A resumed plan reads its cuts again.
Changes of the table behind the plan do not change the noted repeats. An empty page means that reading goes on.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import compress

import numpy as np
from msgspec.structs import replace

from services.worker.jobs.cutting import PlannedBatch, TableCuts
from shared.audience.recipient_tables import RecipientTables
from shared.domain.audience.named_columns import NamedColumns
from shared.domain.audience.ranges import KeyRange
from shared.domain.audience.repeats import Hashes, Repeats, hashes_of, later_ones
from shared.domain.audience.row_keys import check_unshared
from shared.domain.jobs.jobs import Job

_ROWS_AT_ONCE = 100


class DistinctCuts:
    """Cuts tables in which only a recipient's first row counts."""

    def __init__(self, tables: RecipientTables, cuts: TableCuts) -> None:
        self._tables = tables
        self._cuts = cuts

    async def pages(
        self, job: Job, highest: int, last: KeyRange | None, size: int, named: NamedColumns
    ) -> AsyncGenerator[list[PlannedBatch]]:
        """The batches behind the last one, as `TableCuts.pages`. Raises `Invalid`."""
        repeats = Repeats()
        if last is not None:
            async with aclosing(self._cuts.pages(job, last.upto, None, size)) as read_before:
                async for page in read_before:
                    for batch in page:
                        await self._mark(job, batch, named, repeats)
                    yield []
        async with aclosing(self._cuts.pages(job, highest, last, size)) as pages:
            async for page in pages:
                yield [await self._mark(job, batch, named, repeats) for batch in page]

    async def _mark(self, job: Job, batch: PlannedBatch, named: NamedColumns, repeats: Repeats) -> PlannedBatch:
        """The batch without its repeats, which are remembered with the others."""
        keys = batch.range
        assert isinstance(keys, KeyRange)
        rows = await self._tables.read(job.table, job.filters, keys, [named.ids])
        check_unshared(job.table, rows.keys)
        hashes = await _hash(rows.columns[0], named)
        flags = repeats.mark(hashes)
        if not repeats.is_exhaustive:
            flags = flags | later_ones(hashes)
        repeated = tuple(compress(rows.keys.tolist(), flags.tolist()))
        return replace(batch, range=replace(keys, repeated=repeated), size=len(hashes) - len(repeated))


async def _hash(recipients: list[bytes], named: NamedColumns) -> Hashes:
    """The hashes of the recipients. Other coroutines run in between, because messages are sent at exact instants
    meanwhile."""
    parts = []
    for first in range(0, len(recipients), _ROWS_AT_ONCE):
        parts.append(hashes_of(recipients[first : first + _ROWS_AT_ONCE], named.normalize))
        await asyncio.sleep(0)
    return np.concatenate(parts) if parts else hashes_of(())
