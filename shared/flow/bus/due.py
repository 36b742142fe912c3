"""Due wake-ups: the clock hands them to workers, many in one update."""

from collections.abc import Sequence

from shared.domain.clock.occurrences import Occurrence
from shared.flow.bus.waking import Waker
from shared.runtime.coalescer import Coalescer


class DueQueues:
    """The clock's handler for owners of the kind `bus`."""

    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._hand_over = Coalescer(self._hand_over_all)

    async def begin(self, occurrence: Occurrence) -> None:
        """Hand a wake-up to a worker; the clock no longer holds it then."""
        await self._hand_over(occurrence)

    async def _hand_over_all(self, claimed: Sequence[Occurrence]) -> Sequence[None]:
        await self._waker.hand_over(claimed)
        return [None] * len(claimed)
