"""Pacing: at which instants the calls of one provider account begin, so that its rate is never exceeded.

A worker *reserves* a grant: evenly spaced instants of the near future, a second's worth at most. The account's `Pace`
holds the last instant that anybody was given, and is stored by compare-and-set on `seq`. So no instant is given twice,
and whoever dies with a grant leaves it unused. A call begins at its instant or up to `late_us` behind it. Otherwise the
instant is lost: nothing catches up, so nothing bursts.

Between two instants lies (1 s + guard) / rate. The guard is as long as a call may be late (`late_us`), as the clocks of
two processes may differ (`clock_us`), and as the way to the provider may vary (`network_us`), together. So the calls
that a provider sees within one second were due within 1 s + guard, and these are at most the rate, rounded up.

All times are the database's, in microseconds since 1970, by the clock that the pace names (`clock_changes`).
"""

from datetime import timedelta
from enum import StrEnum
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

_SECOND = 1_000_000
_MICROSECOND = timedelta(microseconds=1)

HORIZON_US = _SECOND // 2
FARTHEST_US = 10 * _SECOND
"""No grant begins more than `HORIZON_US` or one interval ahead, and none more than `FARTHEST_US`."""

BEHIND_US = _SECOND // 5
"""A batch behind another one reserves this much later. A worker asks for its next instants within 100 ms, so the first
batch has asked by then."""

FIRST_IN_LINE_US = 3 * _SECOND // 2
"""How far ahead the grants begin of whoever is first in line: behind any grant of others, which is a second long at
most. They end within `FIRST_IN_LINE_US` and half a second."""

# Of a quick account each has less than a second, so that one can note messages while another one calls.
_MOST_INSTANTS = 500
SMALLEST_SHARE = 1 / 64
"""No account is slowed to less of its rate."""

_RECOVERY_US = 10 * _SECOND
_RECOVERED = 0.1
_LONGEST_HOLD_US = 60 * _SECOND
LONGEST_PAUSE_US = 86_400 * _SECOND
"""For no longer is an account held, whatever its provider asks for."""


class PaceGuard(Struct, frozen=True):
    """What may come between the instant of a call and its arrival. It must be alike in all processes."""

    late_us: int = 8_000
    clock_us: int = 5_000
    network_us: int = 7_000

    @property
    def us(self) -> int:
        """The whole of it."""
        return self.late_us + self.clock_us + self.network_us


class Limit(StrEnum):
    """What bounds an account, and so why nothing is granted now."""

    RATE = "rate"  # as much as may be is granted already
    PROVIDER = "provider"  # the provider asked for a pause
    IN_FLIGHT = "maxInFlight"  # as many calls as may be are under way
    WORK = "work"  # there is nothing to send, or its workers do not keep up
    CLOCK = "clock"  # another clock counts since a moment ago, or ours is not the one that counts


class Pace(Struct, frozen=True, kw_only=True):
    """Where an account stands. `last_us` is the last instant that was given. Nothing begins before `free_us`, which a
    change of the clock sets, and nothing before `hold_until_us`, which the provider asked for. `clock` names the clock
    by which all of this is told.

    At `slowed_us` the provider said that calls came too fast: since then they have `share` of the rate, and a tenth of
    the rate more every ten seconds. `strikes` counts how often it said so since the rate was last whole.
    """

    seq: int = 0
    last_us: int = 0
    free_us: int = 0
    hold_until_us: int = 0
    share: float = 1.0
    slowed_us: int = 0
    strikes: int = 0
    clock: str = ""

    def share_at(self, now_us: int) -> float:
        """The share of the rate that may be used by then."""
        recovered = max(now_us - self.slowed_us, 0) // _RECOVERY_US * _RECOVERED
        return min(self.share + recovered, 1.0)

    def next_seq(self) -> "Pace":
        """The same pace, for whoever changes something else that is stored with it."""
        return replace(self, seq=self.seq + 1)


class Grant(Struct, frozen=True):
    """`count` instants, the first at `first_us`, each `interval_us` behind the one before. It is the one that left the
    pace at `seq`; the instant given before it is `before_us`."""

    seq: int
    first_us: int
    interval_us: int
    count: int
    before_us: int = 0

    def instant(self, index: int) -> int:
        """The instant with this number, from 0."""
        return self.first_us + index * self.interval_us

    @property
    def last_us(self) -> int:
        """Its last instant."""
        return self.instant(self.count - 1)


class Wait(Struct, frozen=True):
    """Nothing is granted before then, and why."""

    until_us: int
    limit: Limit


def interval_us(rate: float, guard: PaceGuard) -> int:
    """How far two instants are apart, at so many calls a second."""
    return ceil((_SECOND + guard.us) / rate)


def effective_rate(pace: Pace, rate: float, now_us: int) -> float:
    """The calls a second that a grant of now would be cut for."""
    return rate * pace.share_at(now_us)


def reserve(
    pace: Pace,
    *,
    rate: float,
    count: int,
    now_us: int,
    clock: str,
    ahead_us: int,
    guard: PaceGuard,
    first_in_line: bool = False,
    behind: bool = False,
) -> tuple[Pace, Grant] | Wait:
    """Up to `count` instants, the first at least `ahead_us` from now, and the pace to store with them. `clock` names
    the clock that `now_us` was read from. Whoever is `first_in_line` need not wait for the end of others' grants.
    Whoever is `behind` takes only instants that nobody before it has asked for."""
    if pace.clock != clock:
        return Wait(now_us, Limit.CLOCK)
    interval = interval_us(effective_rate(pace, rate, now_us), guard)
    blocked_until, limit = max(
        (pace.last_us + interval, Limit.RATE),
        (pace.free_us, Limit.CLOCK),
        (pace.hold_until_us, Limit.PROVIDER),
    )
    first = max(blocked_until, now_us + ahead_us)
    horizon = _horizon_us(interval) - BEHIND_US * behind
    farthest = now_us + max(FIRST_IN_LINE_US if first_in_line and interval <= HORIZON_US else horizon, ahead_us)
    if first > farthest:
        return Wait(first - horizon, limit)
    is_near = first <= now_us + max(horizon, ahead_us)
    longest = min(_SECOND, _MOST_INSTANTS * interval) if is_near else farthest + HORIZON_US - first
    grant = Grant(pace.seq + 1, first, interval, min(count, max(longest // interval, 1)), pace.last_us)
    return replace(pace, seq=grant.seq, last_us=grant.last_us), grant


def earliest_us(pace: Pace, *, rate: float, now_us: int) -> int | None:
    """When somebody should look again, where nothing is granted for so long that nobody waits for it; `None` where
    something is granted soon."""
    interval = interval_us(effective_rate(pace, rate, now_us), PaceGuard(0, 0, 0))
    until = max(pace.last_us + interval - _horizon_us(interval), pace.free_us, pace.hold_until_us)
    return until if until > now_us + FARTHEST_US else None


def give_back(pace: Pace, grant: Grant, *, used: int) -> Pace | None:
    """The pace without the instants of the grant behind the first `used` ones. `None` where there is nothing to give
    back, or where somebody else has reserved since."""
    if pace.last_us != grant.last_us or used >= grant.count:
        return None
    return replace(pace, seq=pace.seq + 1, last_us=grant.instant(used - 1) if used else grant.before_us)


def slow_down(pace: Pace, *, began_us: int, now_us: int, retry_after: timedelta | None) -> Pace:
    """The pace after the provider said that a call, which began at `began_us`, came too fast. Only a call that began
    behind the pause shows that the pause was too short, or the rate too high still. Others were granted before the
    first refusal was heard: they change the share no more, but a longer pause that the provider asks for counts."""
    strikes = 0 if pace.share_at(now_us) >= 1 else pace.strikes
    is_news = began_us >= pace.hold_until_us or not strikes
    strikes += is_news
    pause_us = min(_SECOND << (strikes - 1), _LONGEST_HOLD_US) if retry_after is None else retry_after // _MICROSECOND
    pause_us = min(max(pause_us, _SECOND), LONGEST_PAUSE_US)
    held = replace(pace, seq=pace.seq + 1, hold_until_us=max(pace.hold_until_us, now_us + pause_us))
    if not is_news:
        return held
    return replace(held, share=max(pace.share_at(now_us) / 2, SMALLEST_SHARE), slowed_us=now_us, strikes=strikes)


def lift(pace: Pace) -> Pace:
    """The pace without a pause that the provider asked for, since somebody knows that the pause is over. A slowed rate
    stays slowed."""
    return replace(pace, seq=pace.seq + 1, hold_until_us=0)


def _horizon_us(interval: int) -> int:
    return min(max(HORIZON_US, interval), FARTHEST_US)
