"""Upkeep: one look at all open jobs every few seconds, by every scheduler process; what two find at once is moved
once."""

from shared.flow.jobs.upkeep import Upkeep
from shared.runtime.loops import Periodic, Swept
from shared.runtime.metrics import UPKEEP_FOUND


def keep_up(upkeep: Upkeep, *, interval_seconds: float) -> Periodic:
    """The component that runs upkeep."""

    async def run_once() -> Swept:
        found = await upkeep.run_once()
        for kind in ("starts", "plans", "queued", "owned"):
            UPKEEP_FOUND.labels(kind).inc(getattr(found, kind))
        return Swept(claimed=found.jobs, retried=found.starts + found.plans + found.queued + found.owned)

    return Periodic("upkeep", run_once, interval_seconds=interval_seconds)
