"""Cutting a file of users into batches, once for all jobs of its group.

A file is always read from its beginning: only so we know whether a user stands in it twice. Cuts that are stored
already are passed on without reading. A file that is not too large is read to its end before the first of its batches
is made, so that a broken line keeps all of it from being sent.

An empty page says that reading goes on.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from services.worker.jobs.cutting import PlannedBatch
from shared.blobs import Blobs
from shared.domain.audience.csv_cuts import Cutter
from shared.domain.audience.csv_rows import HEADER_ONLY, RowReader
from shared.domain.audience.ranges import ByteRange
from shared.domain.audience.repeats import Repeats
from shared.domain.audience.user_ids import NORMAL_FORMS
from shared.domain.errors import Invalid
from shared.store import Store
from shared.store.jobs.files import PAGE, FilePlan

_READ_FIRST_BYTES = 10**9


class FileCuts:
    """Cuts files of users."""

    def __init__(self, store: Store, blobs: Blobs) -> None:
        self._store = store
        self._blobs = blobs

    async def pages(self, plan_id: str, first: int, *, zone: str) -> AsyncGenerator[list[PlannedBatch]]:
        """The batches from the one with this number on. Raises `Unavailable`, and `Invalid` for what is wrong with the
        file."""
        number, passed = divmod(first, PAGE)
        while (page := await self._store.files.page(plan_id, number)) is not None:
            yield _planned_batches(number, page, zone)[passed:]
            number, passed = number + 1, 0
        plan = await self._store.files.plan(plan_id)
        if plan is None or plan.failure:
            raise Invalid(plan.failure if plan else "nothing is known of the file", field="csvPath")
        if plan.pages == number:
            return
        async with aclosing(self._add_pages(plan, number)) as pages:
            async for page in pages:
                yield _planned_batches(number, page, zone)[passed:]
                number, passed = (number + 1, 0) if page else (number, passed)

    async def _add_pages(self, plan: FilePlan, wanted: int) -> AsyncGenerator[list[ByteRange]]:
        """The pages from the wanted one on, stored with all before them."""
        number = rows = repeats = 0
        async with aclosing(self._fresh(plan)) as pages:
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

    async def _fresh(self, plan: FilePlan) -> AsyncGenerator[list[ByteRange]]:
        """The pages of the file, all of it read before the first one unless it is too large to wait for."""
        large = plan.file.size > _READ_FIRST_BYTES
        held = []
        async with aclosing(self._read(plan)) as pages:
            async for page in pages:
                held += [] if large else [page]
                yield page if large else []
        for page in filter(None, held):
            yield page

    async def _read(self, plan: FilePlan) -> AsyncGenerator[list[ByteRange]]:
        reader, cutter = RowReader(), Cutter(plan.cut_records, Repeats(), normalize=NORMAL_FORMS.get(plan.user_type))
        page: list[ByteRange] = []
        async with aclosing(self._blobs.read(plan.file, 0, plan.file.size)) as chunks:
            async for chunk in chunks:
                page += cutter.add(reader.feed(chunk))
                while len(page) >= PAGE:
                    yield page[:PAGE]
                    page = page[PAGE:]
                yield []
        page += cutter.add(reader.finish()) + cutter.finish()
        while page:
            yield page[:PAGE]
            page = page[PAGE:]


def _planned_batches(number: int, cuts: Sequence[ByteRange], zone: str) -> list[PlannedBatch]:
    """The batches that a page's cuts become. How many of their users belong to a zone is only known when they are read.

    Only the last page may have a single cut. So a first page with a single cut is the whole file.
    """
    whole = number == 0 and len(cuts) == 1
    return [PlannedBatch(cut, 0 if zone else cut.users, whole) for cut in cuts]
