"""Counts how many of the instants that a worker was granted went unused, and tells what bounds the worker from that."""

from enum import Enum

from shared.domain.messages.blocks import COLUMNS
from shared.domain.messages.pacing import Limit
from shared.runtime.metrics import INSTANTS_LOST

_NOTABLE = 5
_QUICK_US = 5_000
_FEWEST_COUNTED = 20


class LostInstant(Enum):
    """Why an instant went unused."""

    LATE = "late"
    NOT_READY = "not_ready"
    NO_PERMIT = "no_permit"


class Speed:
    """How many `columns` of a quick account's instants this process can use: fewer after it lost more than a quarter of
    the last ones, more after it lost less than a twentieth."""

    def __init__(self) -> None:
        self.columns = COLUMNS

    def learn(self, counted: int, behind: int, interval_us: int) -> None:
        """`behind` of so many instants were lost, as the process did not keep up."""
        if interval_us > _QUICK_US or counted < _FEWEST_COUNTED:
            return
        if 4 * behind > counted:
            self.columns = max(min(self.columns - 1, -(-self.columns * (counted - behind) // counted)), 1)
        elif 20 * behind < counted:
            self.columns = min(self.columns + 1, COLUMNS)


class InstantCounts:
    """Counts them: `lost` since the beginning, and beside that since the last grant."""

    def __init__(self, speed: Speed) -> None:
        self.lost = dict.fromkeys(LostInstant, 0)
        self.speed = speed
        self._granted = 0
        self._used = 0
        self._before = dict(self.lost)

    def use(self) -> None:
        """A call began at one."""
        self._used += 1

    def lose(self, why: LostInstant) -> None:
        """One went unused."""
        self.lost[why] += 1
        INSTANTS_LOST.labels(why.value).inc()

    def begin(self, granted: int, interval_us: int) -> None:
        """So many are granted from now on."""
        lost = self._lost_of_late()
        behind = lost[LostInstant.LATE] + lost[LostInstant.NOT_READY]
        self.speed.learn(self._used + sum(lost.values()), behind, interval_us)
        self._granted = granted
        self._used = 0
        self._before = dict(self.lost)

    @property
    def limit(self) -> Limit:
        """What has bounded us since the last grant: the rate, unless a fifth of it was lost."""
        lost = self._lost_of_late()
        notable = max(self._granted, 1) / _NOTABLE
        if lost[LostInstant.NO_PERMIT] > notable:
            return Limit.IN_FLIGHT
        behind = lost[LostInstant.LATE] + lost[LostInstant.NOT_READY]
        return Limit.WORK if behind > notable else Limit.RATE

    def _lost_of_late(self) -> dict[LostInstant, int]:
        return {why: count - self._before[why] for why, count in self.lost.items()}
