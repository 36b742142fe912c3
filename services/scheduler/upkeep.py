"""Upkeep: one look at all open jobs every few seconds, by every scheduler process; what two find at once is moved
once."""

from shared.flow.jobs.upkeep import Lost
from shared.runtime.loops import Periodic, Swept
from shared.runtime.metrics import UPKEEP_FOUND


def upkeep(lost: Lost, *, interval_seconds: float) -> Periodic:
    """The component."""

    async def run_once() -> Swept:
        found = await lost.find()
        for kind in ("starts", "plans", "queued", "owned"):
            UPKEEP_FOUND.labels(kind).inc(getattr(found, kind))
        return Swept(claimed=found.jobs, retried=found.starts + found.plans + found.queued + found.owned)

    return Periodic("upkeep", run_once, interval_seconds=interval_seconds)
