"""Dry runs of the moves of jobs: which jobs a move is about, and how many devices have got nothing yet."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from litestar import Response
from msgspec import Struct

from services.api.http import wire
from shared.domain.jobs.jobs import Job, JobStatus
from shared.flow.jobs.figures import sum_unsent
from shared.store import Store


class MoveFiguresView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The effect of a move: so many `jobs` would be moved. `devicesNotReached` have got nothing yet, as far as these
    jobs are planned; `unplanned` of them are not planned to their end."""

    jobs: int
    devices_not_reached: int | None
    unplanned: int | None


async def answer_figures(store: Store, jobs: Sequence[Job], movable: AbstractSet[JobStatus]) -> Response[bytes]:
    """The figures of those of these jobs whose status allows the move."""
    told = await sum_unsent(store, [job for job in jobs if job.status in movable])
    view = MoveFiguresView(jobs=told.jobs, devices_not_reached=told.devices_not_reached, unplanned=told.unplanned)
    return wire.answer(view)
