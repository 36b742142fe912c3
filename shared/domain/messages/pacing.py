"""Pacing: at which instants the calls of one provider account begin, so that its rate is never exceeded.

A worker *reserves* a grant: evenly spaced instants of the near future, a second's worth at most. The account's `Pace`
holds the last instant that was dealt out, and is stored by compare-and-set on `seq`. So no instant is given twice,
and whoever dies with a grant leaves it unused. A call begins at its instant or up to `late_us` behind it. Otherwise the
instant is lost: nothing catches up, so nothing bursts. Several workers of a quick account share `Block`s of instants.

Between two instants lies (1 s + guard) / rate. The guard is as long as a call may be late (`late_us`), as the clocks of
two processes may differ (`clock_us`), and as the way to the provider may vary (`network_us`), together. So the calls
that a provider sees within one second were due within 1 s + guard, and these are at most the rate, rounded up.

All times are the database's, in microseconds since 1970, by the clock that the pace names (`clock_changes`).
"""

from enum import StrEnum
from math import ceil, inf

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.messages.blocks import Block, Columns, width_of

_SECOND = 1_000_000

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
# Where single messages come, grants are short and begin soon: a single message waits for the end of what is granted.
_SHORT_US = 150_000
_SHORT_HORIZON_US = 100_000
_SINGLES_EXPECTED_US = 60 * _SECOND
_LONGEST_ROW_US = _SECOND // 20
SMALLEST_SHARE = 1 / 64
"""No account is slowed to less of its rate."""

_RECOVERY_US = 10 * _SECOND
_RECOVERED = 0.1
LONGEST_PAUSE_US = 86_400 * _SECOND
"""For no longer is an account held, whatever its provider asks for."""


class PaceGuard(Struct, frozen=True):
    """The time that may pass between the instant of a call and its arrival. It must be alike in all processes."""

    late_us: int = 8_000
    clock_us: int = 5_000
    network_us: int = 7_000

    @property
    def us(self) -> int:
        """The whole of it."""
        return self.late_us + self.clock_us + self.network_us


class Limit(StrEnum):
    """The limit of an account, and so the reason why nothing is granted now."""

    RATE = "rate"  # as much as may be is granted already
    PROVIDER = "provider"  # the provider asked for a pause
    IN_FLIGHT = "maxInFlight"  # as many calls as may be are under way
    WORK = "work"  # there is nothing to send, or its workers do not keep up
    CLOCK = "clock"  # another clock counts since a moment ago, or ours is not the one that counts


class Pace(Struct, frozen=True, kw_only=True):
    """The pace of an account. `last_us` is the last instant that was given. Nothing begins before `free_us`, which a
    change of the clock sets, and nothing before `hold_until_us`, which the provider asked for. `clock` names the clock
    by which all of this is told.

    At `slowed_us` the provider said that calls came too fast: since then they have `share` of the rate, and a tenth of
    the rate more every ten seconds. `strikes` counts how often it said so since the rate was last whole.

    Workers may take the columns that are left of `block`, the last one dealt. The sender of single messages last
    reserved at `first_in_line_us`.
    """

    seq: int = 0
    last_us: int = 0
    free_us: int = 0
    hold_until_us: int = 0
    share: float = 1.0
    slowed_us: int = 0
    strikes: int = 0
    clock: str = ""
    block: Block | None = None
    first_in_line_us: int = 0

    def share_at(self, now_us: int) -> float:
        """The share of the rate that may be used by then."""
        recovered = max(now_us - self.slowed_us, 0) // _RECOVERY_US * _RECOVERED
        return min(self.share + recovered, 1.0)

    def next_seq(self) -> "Pace":
        """The same pace, for whoever changes something else that is stored with it."""
        return replace(self, seq=self.seq + 1)


class Grant(Struct, frozen=True):
    """`count` instants, the first at `first_us`, each `interval_us` behind the one before, or those of `columns`. It is
    the one that left the pace at `seq`; the instant given before it is `before_us`."""

    seq: int
    first_us: int
    interval_us: int
    count: int
    before_us: int = 0
    columns: Columns | None = None

    def instant(self, index: int) -> int:
        """The instant with this number, from 0."""
        return self.first_us + index * self.interval_us if self.columns is None else self.columns.instant(index)

    @property
    def spacing_us(self) -> int:
        """How far its instants are apart, on average."""
        return self.interval_us if self.columns is None else self.columns.spacing_us

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
    most: float = inf,
    after_us: int = 0,
) -> tuple[Pace, Grant] | Wait:
    """Up to `count` instants, the first at least `ahead_us` from now and behind `after_us`, and the pace to store with
    them. `clock` names the clock that `now_us` was read from. A sender that is `first_in_line` does not
    wait for the end of other grants. A batch that is `behind` takes only instants that earlier batches have not asked
    for. A worker that makes `most` calls a second takes no more columns of a block, and one at least."""
    if pace.clock != clock:
        return Wait(now_us, Limit.CLOCK)
    interval = interval_us(effective_rate(pace, rate, now_us), guard)
    row = width_of(interval) * interval
    columns = max(int(min(most * row / _SECOND, width_of(interval))), 1)
    soonest = max(pace.free_us, pace.hold_until_us, now_us + ahead_us)
    noted = replace(pace, seq=pace.seq + 1, first_in_line_us=now_us if first_in_line else pace.first_in_line_us)
    if pace.block is not None and pace.block.interval_us == interval and not behind:
        left = pace.block.take(columns, count, from_us=max(soonest, after_us + 1))
        if left is not None:
            return replace(noted, block=left[0]), _grant_of(noted.seq, left[1], count)
    blocked_until, limit = max(
        (pace.last_us + interval, Limit.RATE),
        (pace.free_us, Limit.CLOCK),
        (pace.hold_until_us, Limit.PROVIDER),
    )
    first = max(blocked_until, soonest)
    is_short = now_us < pace.first_in_line_us + _SINGLES_EXPECTED_US
    horizon = _horizon_us(interval, is_short=is_short) - BEHIND_US * behind
    farthest = now_us + max(FIRST_IN_LINE_US if first_in_line and interval <= HORIZON_US else horizon, ahead_us)
    if first > farthest:
        return Wait(first - horizon, limit)
    is_near = first <= now_us + max(horizon, ahead_us)
    longest = (_SHORT_US if is_short else _SECOND) if is_near else farthest + HORIZON_US - first
    if columns < width_of(interval) and is_near and row <= _LONGEST_ROW_US:
        rows = min(-(-count // columns), _MOST_INSTANTS // columns, longest // row)
        dealt = Block(first_us=first, interval_us=interval, rows=rows).take(columns, count, from_us=first)
        assert dealt is not None
        return replace(noted, last_us=dealt[0].last_us, block=dealt[0]), _grant_of(noted.seq, dealt[1], count)
    longest = min(longest, _MOST_INSTANTS * interval) if is_near else longest
    grant = Grant(noted.seq, first, interval, min(count, max(longest // interval, 1)), pace.last_us)
    return replace(noted, last_us=grant.last_us), grant


def _grant_of(seq: int, columns: Columns, count: int) -> Grant:
    return Grant(seq, columns.instant(0), columns.interval_us, min(count, columns.count), columns=columns)


def earliest_us(pace: Pace, *, rate: float, now_us: int) -> int | None:
    """When somebody should look again, where nothing is granted for so long that nobody waits for it; `None` where
    something is granted soon."""
    interval = interval_us(effective_rate(pace, rate, now_us), PaceGuard(0, 0, 0))
    until = max(pace.last_us + interval - _horizon_us(interval), pace.free_us, pace.hold_until_us)
    return until if until > now_us + FARTHEST_US else None


def give_back(pace: Pace, grant: Grant, *, used: int) -> Pace | None:
    """The pace without the instants of the grant behind the first `used` ones. `None` where there is nothing to give
    back, or where others have instants among them or behind them."""
    if grant.columns is not None or pace.last_us != grant.last_us or used >= grant.count:
        return None
    return replace(pace, seq=pace.seq + 1, last_us=grant.instant(used - 1) if used else grant.before_us)


def _horizon_us(interval: int, *, is_short: bool = False) -> int:
    return min(max(_SHORT_HORIZON_US if is_short else HORIZON_US, interval), FARTHEST_US)
