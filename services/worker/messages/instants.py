"""Counts how many of the instants that a worker was granted went unused, and tells what bounds the worker from that."""

from enum import Enum

from shared.domain.messages.pacing import Limit
from shared.runtime.metrics import INSTANTS_LOST

_NOTABLE = 5


class LostInstant(Enum):
    """Why an instant went unused."""

    LATE = "late"
    NOT_READY = "not_ready"
    NO_PERMIT = "no_permit"


class InstantCounts:
    """Counts them: `lost` since the beginning, and beside that since the last grant."""

    def __init__(self) -> None:
        self.lost = dict.fromkeys(LostInstant, 0)
        self._granted = 0
        self._before = dict(self.lost)

    def lose(self, why: LostInstant) -> None:
        """One went unused."""
        self.lost[why] += 1
        INSTANTS_LOST.labels(why.value).inc()

    def begin(self, granted: int) -> None:
        """So many are granted from now on."""
        self._granted = granted
        self._before = dict(self.lost)

    @property
    def limit(self) -> Limit:
        """What has bounded us since the last grant: the rate, unless a fifth of it was lost."""
        lost = {why: count - self._before[why] for why, count in self.lost.items()}
        notable = max(self._granted, 1) / _NOTABLE
        if lost[LostInstant.NO_PERMIT] > notable:
            return Limit.IN_FLIGHT
        behind = lost[LostInstant.LATE] + lost[LostInstant.NOT_READY]
        return Limit.WORK if behind > notable else Limit.RATE
