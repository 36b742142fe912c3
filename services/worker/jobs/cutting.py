"""Cutting an audience into batches: a push table while it is walked, a table in which each recipient gets one message,
and a file of users, once for all jobs of its group.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import compress

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from shared.audience.rules.audiences import BEGINNING, ByteRange, KeyRange, Range
from shared.audience.rules.columns import NORMAL_FORMS, Header, NamedColumns
from shared.audience.rules.csv_cuts import Cutter
from shared.audience.rules.csv_rows import HEADER_ONLY, RowReader
from shared.audience.rules.devices import Cut, check_unshared
from shared.audience.rules.repeats import Hashes, Repeats, hashes_of, later_ones
from shared.core.errors import Invalid
from shared.drivers.blobs import Blobs
from shared.drivers.postgres import Audience
from shared.drivers.postgres.recipient_tables import RecipientTables
from shared.jobs.rules.jobs import Job
from shared.jobs.store_files import PAGE, FilePlan
from shared.store import Store

# The first page is short, so that the first records leave early.
_FIRST_PAGE = 4


class PlannedBatch(Struct, frozen=True):
    """A future batch: a range of `size` devices, or users of a file. `whole`: it is the whole audience."""

    range: Range
    size: int
    whole: bool = False


class TableCuts:
    def __init__(self, audience: Audience | RecipientTables, *, page_batches: int) -> None:
        self._audience = audience
        self._page_batches = page_batches

    async def pages(
        self, job: Job, highest: int, last: KeyRange | None, size: int
    ) -> AsyncGenerator[list[PlannedBatch]]:
        """The batches behind the last one, up to the highest key. Raises `Invalid`."""
        after = BEGINNING if last is None else last.upto
        batches = _FIRST_PAGE if last is None else self._page_batches
        while cuts := await self._cut(job, after, highest, size, batches):
            whole = after == BEGINNING and await self._is_whole(job, cuts, highest)
            begins = [after, *(cut.upto for cut in cuts)]
            yield [
                PlannedBatch(KeyRange(begin, cut.upto), cut.size, whole)
                for begin, cut in zip(begins, cuts, strict=False)
            ]
            after, batches = cuts[-1].upto, self._page_batches

    async def _cut(self, job: Job, after: int, highest: int, size: int, batches: int) -> list[Cut]:
        return await self._audience.cut(job.table, job.filters, after=after, upto=highest, size=size, batches=batches)

    async def _is_whole(self, job: Job, cuts: Sequence[Cut], highest: int) -> bool:
        """Whether nothing follows the only cut. Only a job with a control group needs to know."""
        if not job.control_group or len(cuts) > 1:
            return False
        return not await self._cut(job, cuts[0].upto, highest, 1, 1)


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


_READ_FIRST_BYTES = 10**9
_ALL_ROWS = 2**63 - 1


class FileCuts:
    def __init__(self, store: Store, blobs: Blobs) -> None:
        self._store = store
        self._blobs = blobs

    async def pages(
        self, plan_id: str, first: int, *, named: NamedColumns | None = None
    ) -> AsyncGenerator[list[PlannedBatch]]:
        """The batches from number `first` on. The first column contains the ids, unless columns are `named`: then the
        plan stores the file's header before the first page. Raises `Invalid` if the file is wrong."""
        number, passed = divmod(first, PAGE)
        while (page := await self._store.files.page(plan_id, number)) is not None:
            yield _planned_file_batches(number, page)[passed:]
            number, passed = number + 1, 0
        plan = await self._store.files.plan(plan_id)
        if plan is None or plan.failure:
            raise Invalid(plan.failure if plan else "nothing is known of the file", field="csvPath")
        if plan.pages == number:
            return
        async with aclosing(self._add_pages(plan, number, named)) as pages:
            async for page in pages:
                yield _planned_file_batches(number, page)[passed:]
                number, passed = (number + 1, 0) if page else (number, passed)

    async def _add_pages(
        self, plan: FilePlan, wanted: int, named: NamedColumns | None
    ) -> AsyncGenerator[list[ByteRange]]:
        """The pages from the wanted one on, stored with all before them."""
        number = rows = repeats = 0
        async with aclosing(self._fresh(plan, named)) as pages:
            async for page in pages:
                if page:
                    await self._store.files.add_page(plan.id, number, page)
                    number += 1
                    rows += sum(cut.rows for cut in page)
                    repeats += sum(cut.repeats for cut in page)
                yield page if number > wanted else []
        if not rows:
            raise Invalid(HEADER_ONLY, field="csvPath", value=plan.file.path)
        await self._store.files.end(plan.id, pages=number, users=rows - repeats, repeated=repeats)

    async def _fresh(self, plan: FilePlan, named: NamedColumns | None) -> AsyncGenerator[list[ByteRange]]:
        """The pages of the file. Unless it is too large, all of it is read before the first page."""
        large = plan.file.size > _READ_FIRST_BYTES
        held = []
        async with aclosing(self._read(plan, named)) as pages:
            async for page in pages:
                held += [] if large else [page]
                yield page if large else []
        for page in filter(None, held):
            yield page

    async def _read(self, plan: FilePlan, named: NamedColumns | None) -> AsyncGenerator[list[ByteRange]]:
        """The pages of the file; an empty one for each chunk. Raises `Invalid` as soon as there are too many
        recipients."""
        reading = _Reading(plan, named)
        page: list[ByteRange] = []
        async with aclosing(self._blobs.read(plan.file, 0, plan.file.size)) as chunks:
            async for chunk in chunks:
                page += await reading.cut(chunk)
                await self._keep_header(plan, reading)
                while len(page) >= PAGE:
                    yield page[:PAGE]
                    page = page[PAGE:]
                yield []
        page += reading.finish()
        await self._keep_header(plan, reading)
        while page:
            yield page[:PAGE]
            page = page[PAGE:]

    async def _keep_header(self, plan: FilePlan, reading: "_Reading") -> None:
        header = reading.take_header()
        if header is not None and header != plan.header:
            await self._store.files.keep_header(plan.id, header)


class _Reading:
    def __init__(self, plan: FilePlan, named: NamedColumns | None) -> None:
        if named is None:
            self._reader, normalize, once = RowReader(), NORMAL_FORMS.get(plan.user_type), True
        else:
            self._reader, normalize, once = RowReader(choose=named.choose), named.normalize, named.once
        self._cutter = Cutter(plan.cut_records, Repeats() if once else None, normalize=normalize)
        self._named = named
        self._recipients = 0
        self._header: Header | None = None

    async def cut(self, chunk: bytes) -> list[ByteRange]:
        """The cuts that this chunk completes. Other coroutines run in between: to normalise a phone number takes 12
        microseconds, a chunk may have a hundred thousand, and messages are sent at exact instants meanwhile."""
        cuts: list[ByteRange] = []
        for rows in self._reader.feed(chunk).parts(_ROWS_AT_ONCE if self._named else _ALL_ROWS):
            cuts += self._check(self._cutter.add(rows))
            await asyncio.sleep(0)
        return cuts

    def finish(self) -> list[ByteRange]:
        return self._check(self._cutter.add(self._reader.finish()) + self._cutter.finish())

    def _check(self, cuts: list[ByteRange]) -> list[ByteRange]:
        """The same cuts. Raises `Invalid` if there are too many recipients now."""
        self._recipients += sum(cut.users for cut in cuts)
        if self._named is not None:
            self._named.check(self._recipients)
        return cuts

    def take_header(self) -> Header | None:
        """The header once, after it was read."""
        if self._reader.header == self._header:
            return None
        self._header = self._reader.header
        return self._header


def _planned_file_batches(number: int, cuts: Sequence[ByteRange]) -> list[PlannedBatch]:
    """The batches of a page's cuts. Only the last page may have a single cut, so a first page with a single cut is the
    whole file."""
    whole = number == 0 and len(cuts) == 1
    return [PlannedBatch(cut, cut.users, whole) for cut in cuts]
