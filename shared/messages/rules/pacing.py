"""Pacing: the instants at which the calls of one provider account begin, so that its rate is never exceeded.

A worker *reserves* a grant: evenly spaced instants of the near future, at most a second's worth. The account's
`Pace` holds the last instant that was granted, and is stored by compare-and-set on `seq`. So no instant is granted
twice, and a worker that dies with a grant leaves it unused. A call begins at its instant or up to `late_us` after
it. Otherwise the instant is lost: workers never catch up, so there are no bursts.

Several workers of a fast account share a *block* of instants: a worker that cannot make all of the account's calls
takes some of its columns. If there are eight columns, each is every eighth instant. So several workers call at the
same time, each at different instants, and the intervals between calls stay the same.

The interval is (1 s + guard) / rate. The guard is the sum of the lateness of a call (`late_us`), the difference of
two processes' clocks (`clock_us`), and the variation of the way to the provider (`network_us`). So the calls that a
provider sees within one second were due within 1 s + guard, and these are at most the rate, rounded up.

All times are the database's, in microseconds since 1970, by the clock that the pace names (`adopt`).
"""

from datetime import timedelta
from enum import StrEnum
from math import ceil, inf

from msgspec import Struct
from msgspec.structs import replace

_SECOND = 1_000_000
_COLUMN_RATE = 320
_FEWEST_COLUMNS, _MOST_COLUMNS = 8, 32
# Columns are taken in this order, so that those of one worker are far apart: 0, 16, 8, 24 and so on.
_SPREAD = tuple(sum(1 << (4 - bit) for bit in range(5) if place >> bit & 1) for place in range(_MOST_COLUMNS))


def width_of(interval_us: int) -> int:
    """The number of columns of a block (8, 16 or 32), so that any worker can keep up with one column."""
    width = _FEWEST_COLUMNS
    while width < _MOST_COLUMNS and width * interval_us * _COLUMN_RATE < _SECOND:
        width *= 2
    return width


class Block(Struct, frozen=True, kw_only=True):
    """`rows` of instants, one for each column. The first instant is at `first_us`, and the interval is `interval_us`.
    `taken` has a bit for each column that a worker holds."""

    first_us: int
    interval_us: int
    rows: int
    taken: int = 0

    @property
    def width(self) -> int:
        return width_of(self.interval_us)

    @property
    def row_us(self) -> int:
        """The interval between two instants of one column."""
        return self.width * self.interval_us

    @property
    def last_us(self) -> int:
        return self.first_us + self.rows * self.row_us - self.interval_us

    def take(self, wanted: int, count: int, *, from_us: int) -> tuple["Block", "Columns"] | None:
        """Up to `wanted` free columns, from the first row at or after `from_us`, and no more than `count` instants
        need."""
        free = [column for column in _SPREAD if column < self.width and not self.taken >> column & 1]
        over = max(-(-(from_us - self.first_us) // self.row_us), 0)
        if not free or over >= self.rows:
            return None
        mine = sorted(free[: min(wanted, -(-count // (self.rows - over)))])
        taken = self.taken | sum(1 << column for column in mine)
        return replace(self, taken=taken), Columns(
            self.first_us + over * self.row_us, self.interval_us, self.rows - over, tuple(mine)
        )


class Columns(Struct, frozen=True):
    """Columns of a block, from the row at `first_us` on."""

    first_us: int
    interval_us: int
    rows: int
    columns: tuple[int, ...]

    def instant(self, index: int) -> int:
        row, place = divmod(index, len(self.columns))
        return self.first_us + (row * width_of(self.interval_us) + self.columns[place]) * self.interval_us

    @property
    def spacing_us(self) -> int:
        """The average interval of these instants."""
        return width_of(self.interval_us) * self.interval_us // len(self.columns)

    @property
    def count(self) -> int:
        return self.rows * len(self.columns)


HORIZON_US = _SECOND // 2
FARTHEST_US = 10 * _SECOND
"""No grant begins more than `HORIZON_US` or one interval ahead, and none more than `FARTHEST_US`."""
BEHIND_US = _SECOND // 5
"""A batch behind another one reserves this much later. A worker asks for its next instants within 100 ms, so the first
batch has asked by then."""
FIRST_IN_LINE_US = 3 * _SECOND // 2
"""The lead of the grants of the sender that is first in line: after any other grant, which is at most a second long.
They end within `FIRST_IN_LINE_US` and half a second."""
# A grant of a fast account is shorter than a second, so that one batch can record messages while another one calls.
_MOST_INSTANTS = 500
# With single messages, grants are short and begin soon, because a single message waits for the end of earlier grants.
_SHORT_US = 150_000
_SHORT_HORIZON_US = 100_000
_SINGLES_EXPECTED_US = 60 * _SECOND
_LONGEST_ROW_US = _SECOND // 20
SMALLEST_SHARE = 1 / 64
"""The smallest share of its rate to which an account is slowed."""
_RECOVERY_US = 10 * _SECOND
_RECOVERED = 0.1
LONGEST_PAUSE_US = 86_400 * _SECOND
"""The longest pause of an account, even if its provider asks for more."""


class PaceGuard(Struct, frozen=True):
    """The possible time between the instant of a call and its arrival. All processes must use the same."""

    late_us: int = 8_000
    clock_us: int = 5_000
    network_us: int = 7_000

    @property
    def us(self) -> int:
        return self.late_us + self.clock_us + self.network_us


class Limit(StrEnum):
    """The limit of an account, and so the reason why nothing is granted now."""

    RATE = "rate"  # the rate is used up
    PROVIDER = "provider"  # the provider asked for a pause
    IN_FLIGHT = "maxInFlight"  # the limit of calls in flight is reached
    WORK = "work"  # there is nothing to send, or its workers do not keep up
    CLOCK = "clock"  # the clock has just changed, or the local process has another one


class Pace(Struct, frozen=True, kw_only=True):
    """The pace of an account. `last_us` is the last granted instant. No call begins before `free_us`, which a change of
    the clock sets, or before `hold_until_us`, which the provider asked for. `clock` names the clock of these times.

    At `slowed_us` the provider said that calls came too fast: since then they have `share` of the rate, plus a tenth of
    the rate every ten seconds. `strikes` counts these answers since the rate was last whole.

    Workers may take the free columns of `block`, the last one granted. The sender of single messages last reserved at
    `first_in_line_us`.
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
        """The share of the rate that may be used at that time."""
        recovered = max(now_us - self.slowed_us, 0) // _RECOVERY_US * _RECOVERED
        return min(self.share + recovered, 1.0)

    def next_seq(self) -> "Pace":
        """The same pace with the next `seq`, for a change of other fields stored with it."""
        return replace(self, seq=self.seq + 1)


class Grant(Struct, frozen=True):
    """`count` instants, from `first_us` on with the interval `interval_us`, or those of `columns`. The grant left the
    pace at `seq`; the instant granted before it is `before_us`."""

    seq: int
    first_us: int
    interval_us: int
    count: int
    before_us: int = 0
    columns: Columns | None = None

    def instant(self, index: int) -> int:
        return self.first_us + index * self.interval_us if self.columns is None else self.columns.instant(index)

    @property
    def spacing_us(self) -> int:
        return self.interval_us if self.columns is None else self.columns.spacing_us

    @property
    def last_us(self) -> int:
        return self.instant(self.count - 1)


class Wait(Struct, frozen=True):
    until_us: int
    limit: Limit


def interval_us(rate: float, guard: PaceGuard) -> int:
    """The interval of two instants at this rate in calls a second."""
    return ceil((_SECOND + guard.us) / rate)


def effective_rate(pace: Pace, rate: float, now_us: int) -> float:
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
    """Up to `count` instants, the first at least `ahead_us` from now and after `after_us`, and the pace to store with
    them. `clock` names the clock of `now_us`. A sender that is `first_in_line` does not wait for the end of other
    grants. A batch that is `behind` takes only instants that earlier batches have not asked for. A worker that makes
    `most` calls a second takes no more columns of a block than that, but at least one."""
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
    """The time of the next look, if the next grant is too far ahead to wait for; `None` if it comes soon."""
    interval = interval_us(effective_rate(pace, rate, now_us), PaceGuard(0, 0, 0))
    until = max(pace.last_us + interval - _horizon_us(interval), pace.free_us, pace.hold_until_us)
    return until if until > now_us + FARTHEST_US else None


def give_back(pace: Pace, grant: Grant, *, used: int) -> Pace | None:
    """The pace without the instants of the grant after the first `used` ones. `None` if none are left, or later
    instants are granted already."""
    if grant.columns is not None or pace.last_us != grant.last_us or used >= grant.count:
        return None
    return replace(pace, seq=pace.seq + 1, last_us=grant.instant(used - 1) if used else grant.before_us)


def _horizon_us(interval: int, *, is_short: bool = False) -> int:
    return min(max(_SHORT_HORIZON_US if is_short else HORIZON_US, interval), FARTHEST_US)


_MICROSECOND = timedelta(microseconds=1)
_LONGEST_HOLD_US = 60 * _SECOND


def slow_down(pace: Pace, *, began_us: int, now_us: int, retry_after: timedelta | None) -> Pace:
    """The pace after the provider said that a call, which began at `began_us`, came too fast. Only a call after the
    pause shows that the pause was too short, or the rate still too high. Earlier calls were granted before the first
    refusal was known: they no longer change the share, but a longer pause of the provider's counts."""
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
    """The pace without the provider's pause, which a caller knows to be over. A slowed rate stays slowed."""
    return replace(pace, seq=pace.seq + 1, hold_until_us=0)
