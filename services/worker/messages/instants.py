"""Counting the granted instants that a worker did not use, and the limit that follows from it."""

from enum import Enum

from shared.domain.messages.pacing import Limit
from shared.runtime.metrics import INSTANTS_LOST

_NOTABLE = 5
_QUICK_US = 5_000
_FEWEST_COUNTED = 20
_SECOND = 1_000_000
_SPELL_US = _SECOND // 2
_FORGOTTEN_US = 10 * _SECOND
_FIRST_MOST = 1_000.0
_SMALLEST_MOST = 100.0
_GROWTH = 1.25
_MOST_GROWTH = 3  # of what was used: a second column is more than twice a first that lost one instant


class LostInstant(Enum):
    """Why an instant went unused."""

    LATE = "late"
    NOT_READY = "not_ready"
    NO_PERMIT = "no_permit"


class Speed:
    """How many calls a second this process can make by a quick account. All its batches share this: each reserves
    behind the last instant that any of them holds.

    `most` is the recent maximum. After two spells of half a second that each lost more than a tenth of their instants,
    `most` is the number used in the last one. After a spell that lost less than a twentieth, `most` grows by a quarter.
    """

    def __init__(self) -> None:
        self.most = _FIRST_MOST
        self._held = (0, 0)
        self._is_lagging = False
        self._begin(0)

    def count(self, why: LostInstant | None, now_us: int, interval_us: int) -> None:
        """Count an instant: used, if its call has ended now, or lost for the reason `why`."""
        if interval_us > _QUICK_US:
            return
        if not 0 <= now_us - self._since_us < _SPELL_US:
            self._learn()
            self._is_lagging &= 0 <= now_us - self._since_us < _FORGOTTEN_US
            self._begin(now_us)
        self._until_us = now_us
        self._used += why is None
        self._behind += why in {LostInstant.LATE, LostInstant.NOT_READY}

    def hold(self, until_us: int, generation: int) -> None:
        """Note that a batch holds instants until then, by this generation of the clock."""
        if generation >= self._held[0]:
            self._held = (generation, max(self.after_us(generation), until_us))

    def after_us(self, generation: int) -> int:
        """The last instant that a batch holds by this generation of the clock."""
        known, until_us = self._held
        return until_us if known == generation else 0

    def _begin(self, now_us: int) -> None:
        self._since_us, self._until_us, self._used, self._behind = now_us, now_us, 0, 0

    def _learn(self) -> None:
        counted, lasted_us = self._used + self._behind, self._until_us - self._since_us
        if counted < _FEWEST_COUNTED or lasted_us < _SPELL_US // 2:
            return
        used = self._used * _SECOND / lasted_us
        was_lagging, self._is_lagging = self._is_lagging, 10 * self._behind > counted
        if self._is_lagging and was_lagging:
            self.most = max(min(self.most, used), _SMALLEST_MOST)
        elif 20 * self._behind < counted:
            self.most = max(self.most, min(_GROWTH * self.most, _MOST_GROWTH * used))


class InstantCounts:
    """Counts instants: `lost` since the beginning, and separately since the last grant."""

    def __init__(self, speed: Speed) -> None:
        self.lost = dict.fromkeys(LostInstant, 0)
        self.speed = speed
        self._granted = 0
        self._before = dict(self.lost)

    def use(self, now_us: int, interval_us: int) -> None:
        """Count an instant whose call has ended now."""
        self.speed.count(None, now_us, interval_us)

    def lose(self, why: LostInstant, now_us: int, interval_us: int) -> None:
        """Count an unused instant."""
        self.lost[why] += 1
        INSTANTS_LOST.labels(why.value).inc()
        self.speed.count(why, now_us, interval_us)

    def begin(self, granted: int) -> None:
        """Begin to count for a new grant."""
        self._granted = granted
        self._before = dict(self.lost)

    @property
    def limit(self) -> Limit:
        """The limit since the last grant: the rate, unless a fifth of the instants was lost."""
        lost = {why: count - self._before[why] for why, count in self.lost.items()}
        notable = max(self._granted, 1) / _NOTABLE
        if lost[LostInstant.NO_PERMIT] > notable:
            return Limit.IN_FLIGHT
        behind = lost[LostInstant.LATE] + lost[LostInstant.NOT_READY]
        return Limit.WORK if behind > notable else Limit.RATE
