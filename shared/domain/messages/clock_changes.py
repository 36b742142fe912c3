"""The change of a pace when another clock counts, as after an election. Instants of the old one mean nothing then.

The process that sees it first has everybody wait until all grants of the old clock are over (`adopt`). A pause that the
provider asked for is kept, since it does not know our clocks.
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
"""No clock has been read that is so far ahead of the same clock now."""


def is_of_another_clock(pace: Pace, *, clock: str, rate: float, now_us: int, guard: PaceGuard) -> bool:
    """Whether the pace is not told by this clock, which reads `now_us`. It is not, either, where it tells of instants
    that cannot have come yet: then a clock of this name was ahead, and was put right while nobody looked."""
    if pace.clock != clock:
        return True
    # Whoever adopted the clock may have had any share of the rate.
    change_us = max(_CHANGE_OF_CLOCK_US, 2 * interval_us(rate * SMALLEST_SHARE, guard))
    return (
        max(pace.last_us, pace.slowed_us) > now_us + _FARTHEST_EVER_US
        or pace.free_us > now_us + change_us + _FARTHEST_EVER_US
        or pace.hold_until_us > now_us + LONGEST_PAUSE_US + _FARTHEST_EVER_US
    )


def adopt(pace: Pace, *, clock: str, rate: float, now_us: int, guard: PaceGuard) -> Pace:
    """The pace by another clock, which reads `now_us`. Nothing begins before all that was granted by the old one is
    over, and one interval more; at once, where nothing ever was. A pause that the provider asked for goes on: what is
    left of it by the new clock, and never more than it was."""
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
