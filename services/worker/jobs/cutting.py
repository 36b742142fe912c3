"""Cutting a push table into batches while it is walked."""

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct

from shared.audience import Audience
from shared.audience.recipient_tables import RecipientTables
from shared.domain.audience.audiences import BEGINNING
from shared.domain.audience.cuts import Cut
from shared.domain.audience.ranges import KeyRange, Range
from shared.domain.jobs.jobs import Job

# The first page is short, so that the first records leave early.
_FIRST_PAGE = 4


class PlannedBatch(Struct, frozen=True):
    """A future batch: a range of `size` devices, or users of a file. `whole`: it is the whole audience."""

    range: Range
    size: int
    whole: bool = False


class TableCuts:
    """Cuts push tables."""

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
            yield _planned_batches(after, cuts, whole=whole)
            after, batches = cuts[-1].upto, self._page_batches

    async def _cut(self, job: Job, after: int, highest: int, size: int, batches: int) -> list[Cut]:
        return await self._audience.cut(
            job.table, job.filters, zone=job.zone, after=after, upto=highest, size=size, batches=batches
        )

    async def _is_whole(self, job: Job, cuts: Sequence[Cut], highest: int) -> bool:
        """Whether nothing follows the only cut. Only a job with a control group needs to know."""
        if not job.control_group or len(cuts) > 1:
            return False
        return not await self._cut(job, cuts[0].upto, highest, 1, 1)


def _planned_batches(after: int, cuts: Sequence[Cut], *, whole: bool) -> list[PlannedBatch]:
    begins = [after, *(cut.upto for cut in cuts)]
    return [PlannedBatch(KeyRange(begin, cut.upto), cut.size, whole) for begin, cut in zip(begins, cuts, strict=False)]
