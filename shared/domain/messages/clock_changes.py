"""The change of a pace to another clock, for example after an election. Instants of the old clock mean nothing then.

The first process that sees the new clock makes all workers wait until the grants of the old clock are over (`adopt`). A
pause that the provider asked for is kept, because it does not depend on the database's clock.
"""

from shared.domain.messages.pacing import (
    FARTHEST_US,
    FIRST_IN_LINE_US,
    LONGEST_PAUSE_US,
    SMALLEST_SHARE,
    Pace,
    PaceGuard,
    effective_rate,
    interval_us,
)

_SECOND = 1_000_000
_CHANGE_OF_CLOCK_US = 5 * _SECOND // 2
_FARTHEST_EVER_US = FARTHEST_US + FIRST_IN_LINE_US + _SECOND
"""A pace has no instants further ahead than this of its own clock's present time."""


def is_of_another_clock(pace: Pace, *, clock: str, rate: float, now_us: int, guard: PaceGuard) -> bool:
    """Whether the pace belongs to another clock than this one, which reads `now_us`. That includes a pace with
    impossible future instants: a clock of this name was ahead, and was corrected unnoticed."""
    if pace.clock != clock:
        return True
    # The process that adopted the clock may have used any share of the rate.
    change_us = max(_CHANGE_OF_CLOCK_US, 2 * interval_us(rate * SMALLEST_SHARE, guard))
    return (
        max(pace.last_us, pace.slowed_us) > now_us + _FARTHEST_EVER_US
        or pace.free_us > now_us + change_us + _FARTHEST_EVER_US
        or pace.hold_until_us > now_us + LONGEST_PAUSE_US + _FARTHEST_EVER_US
    )


def adopt(pace: Pace, *, clock: str, rate: float, now_us: int, guard: PaceGuard) -> Pace:
    """The pace by another clock, which reads `now_us`. The first call waits until all grants of the old clock are over,
    and one more interval; not at all if there were none. A pause of the provider's keeps at most its length, and ends
    at its old instant if that comes first by the new clock."""
    interval = interval_us(effective_rate(pace, rate, now_us), guard)
    pause_us = min(max(pace.hold_until_us - pace.slowed_us, 0), LONGEST_PAUSE_US)
    return Pace(
        seq=pace.seq + 1,
        free_us=now_us + max(_CHANGE_OF_CLOCK_US, 2 * interval) if pace.clock else now_us,
        hold_until_us=min(pace.hold_until_us, now_us + pause_us),
        share=pace.share,
        slowed_us=now_us if pace.strikes else 0,
        strikes=pace.strikes,
        clock=clock,
    )
