"""The running jobs of a credential in order, by age or by shares."""

from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from shared.domain.messages.credentials import SendOrder
from shared.domain.messages.shares import Share, join
from shared.store import Store
from shared.store.messages.jobs import RunningJob

_PAGE = 200


async def page_in_order(
    store: Store, credential_id: str, order: SendOrder, *, floor: float | None = None
) -> AsyncIterator[Sequence[RunningJob]]:
    """The jobs in portions, each before the next: by shares all are in one portion, and no job counts as less served
    than `floor`."""
    pages = _page_by_age(store, credential_id)
    if order is SendOrder.SHARES:
        yield await _let_join(store, [job async for page in pages for job in page], floor)
        return
    async for page in pages:
        yield page


async def _page_by_age(store: Store, credential_id: str) -> AsyncIterator[Sequence[RunningJob]]:
    seen, since = set[str](), 0
    while page := await store.message_jobs.find_running(credential_id, since=since, limit=_PAGE):
        if not (fresh := [job for job in page if job.key not in seen]):
            return
        yield fresh
        if len(page) < _PAGE:
            return
        seen.update(job.key for job in fresh)
        since = page[-1].created_at


async def _let_join(store: Store, running: Sequence[RunningJob], floor: float | None) -> Sequence[RunningJob]:
    """The same jobs with ranks: a job that has sent nothing yet begins level with the others."""
    begun = [Share(job.had, job.share) for job in running if job.had is not None]
    least = max(join(begun), floor or 0.0)
    if new := [job.key for job in running if job.had is None]:
        await store.message_jobs.join(new, least)
    return [replace(job, had=least if job.had is None else max(job.had, least)) for job in running]
