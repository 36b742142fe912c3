"""Health: the state of a receiver, and the times of its calls.

A receiver has 0 to 100 points. A success adds one, a failure costs two. Both the points and the failures in a row
require a pause before the next attempt; the longer one counts, or the receiver's own wish if that is longer still. The
pauses of points are Routemaster's; those of failures begin with the first one. Calls that began before a failure was
known count with it as one failure in a row, while each costs its points: eight that fail at the same moment cause a
pause of half a second, not of a minute.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

ALL_POINTS = 100
CALLS_REMEMBERED = 20
LONGEST_RETRY_AFTER = timedelta(days=1)
OWN_PAUSES = (timedelta(seconds=1), timedelta(minutes=10))
"""The first pause of a delivery that failed alone, and the longest."""

_FIRST_PAUSE = timedelta(milliseconds=500)
_NO_PAUSE = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)
_SUCCESS, _FAILURE = "1", "0"
_DOUBLINGS = 40  # beyond these every pause is the longest


class Care(Struct, frozen=True, kw_only=True):
    """A deployment's treatment of receivers: the longest pause, the points of a success and a failure, and the time of
    failures after which a subscription is suspended."""

    max_backoff: timedelta = timedelta(minutes=1)
    heal: int = 1
    damage: int = 2
    suspend_after: timedelta = timedelta(days=5)


class ReceiverHealth(Struct, frozen=True, kw_only=True):
    """The health of a receiver. `asked_until` comes from `Retry-After`. Failures in a row whose calls began before
    the previous one was known count as one: `failed_at` is the end of that one. `warned_at` is the middle of the
    time to a suspension. Time without work for the receiver is not counted: `idle` is its sum since
    `failing_since`, without the present period, which began at `idle_since`. `calls` has a digit for each of the
    last calls, the latest at the end."""

    points: int = ALL_POINTS
    failures: int = 0
    failing_since: datetime | None = None
    failed_at: datetime | None = None
    last_attempt_at: datetime | None = None
    asked_until: datetime | None = None
    warned_at: datetime | None = None
    idle: timedelta = _NO_PAUSE
    idle_since: datetime | None = None
    calls: str = ""

    @property
    def accepted_calls(self) -> int:
        return self.calls.count(_SUCCESS)

    @property
    def accepted_percent(self) -> int:
        """The percentage of successes among the last calls, for users: points fall too slowly for that."""
        return 100 * self.accepted_calls // len(self.calls) if self.calls else 100

    def after_success(self, at: datetime, care: Care) -> "ReceiverHealth":
        points = min(self.points + care.heal, ALL_POINTS)
        calls = _remember(self.calls, _SUCCESS)
        return ReceiverHealth(points=points, last_attempt_at=_later(self.last_attempt_at, at), calls=calls)

    def after_failure(
        self, at: datetime, care: Care, *, took: timedelta = _NO_PAUSE, retry_after: timedelta = _NO_PAUSE
    ) -> "ReceiverHealth":
        is_known = self.failed_at is None or at >= self.failed_at
        asked = at + min(retry_after, LONGEST_RETRY_AFTER) if retry_after > _NO_PAUSE else None
        health = replace(
            self,
            points=max(self.points - care.damage, 0),
            failures=self.failures + is_known,
            failing_since=self.failing_since or at,
            failed_at=at + took if is_known else self.failed_at,
            last_attempt_at=_later(self.last_attempt_at, at),
            asked_until=max(filter(None, (self.asked_until, asked)), default=None),
            idle=self.idle if self.idle_since is None else self.idle + max(at - self.idle_since, _NO_PAUSE),
            idle_since=None,
            calls=_remember(self.calls, _FAILURE),
        )
        return replace(health, warned_at=at) if is_to_be_warned(health, at, care) else health

    def rest_from(self, now: datetime) -> "ReceiverHealth":
        """The health from now on, while there is no work for the receiver."""
        return replace(self, idle_since=now) if self.failing_since is not None and self.idle_since is None else self

    def failed_for(self, now: datetime) -> timedelta:
        if self.failing_since is None:
            return _NO_PAUSE
        return max((self.idle_since or now) - self.failing_since - self.idle, _NO_PAUSE)

    @property
    def is_failing(self) -> bool:
        return self.failures > 0

    def pause(self, care: Care) -> timedelta:
        return max(_pause_of_points(self.points, care), _pause_of_failures(self.failures, care))


class Going(StrEnum):
    GO = "go"
    THROTTLED = "throttled"


class CallGate(Struct, frozen=True):
    """Whether to call now; otherwise `put_off` is the time to wait from now."""

    going: Going
    put_off: timedelta = _NO_PAUSE

    @property
    def is_open(self) -> bool:
        return self.going is Going.GO


def gate(health: ReceiverHealth, now: datetime, care: Care, *, noise: float) -> CallGate:
    """Whether a receiver may be called now. `noise`, from 0 to 1, spreads delayed calls by half their pause."""
    pause, asked = health.pause(care), health.asked_until
    if asked is not None and asked > now:
        return CallGate(Going.THROTTLED, asked - now)
    if pause == _NO_PAUSE or health.last_attempt_at is None or now - health.last_attempt_at > pause:
        return CallGate(Going.GO)
    return CallGate(Going.THROTTLED, spread(pause, noise=noise))


def next_attempt(health: ReceiverHealth, now: datetime, care: Care, *, noise: float) -> datetime:
    resting = now + spread(health.pause(care), noise=noise)
    return resting if health.asked_until is None else max(resting, health.asked_until)


def own_pause(failures: int) -> timedelta:
    first, longest = OWN_PAUSES
    doublings = min(max(failures - 1, 0), _DOUBLINGS)
    return min(first * (1 << doublings), longest)


def is_to_be_suspended(health: ReceiverHealth, now: datetime, care: Care) -> bool:
    return health.failing_since is not None and health.failed_for(now) >= care.suspend_after


def is_to_be_warned(health: ReceiverHealth, now: datetime, care: Care) -> bool:
    """Whether half of that time is over without a warning."""
    if health.failing_since is None or health.warned_at is not None or is_to_be_suspended(health, now, care):
        return False
    return health.failed_for(now) >= care.suspend_after / 2


def spread(pause: timedelta, *, noise: float) -> timedelta:
    """A pause made longer by up to a half, so that waiting receivers do not return together; whole milliseconds."""
    milliseconds: int = -(-(pause * (1 + noise / 2)) // _MILLISECOND)
    return milliseconds * _MILLISECOND


def _pause_of_points(points: int, care: Care) -> timedelta:
    """`max_backoff · 2^-points`, to the millisecond."""
    milliseconds = round(care.max_backoff / _MILLISECOND * 2.0**-points)
    return milliseconds * _MILLISECOND


def _pause_of_failures(failures: int, care: Care) -> timedelta:
    if failures == 0:
        return _NO_PAUSE
    return min(_FIRST_PAUSE * (1 << min(failures - 1, _DOUBLINGS)), care.max_backoff)


def _remember(calls: str, end: str) -> str:
    return (calls + end)[-CALLS_REMEMBERED:]


def _later(noted: datetime | None, at: datetime) -> datetime:
    return at if noted is None else max(noted, at)
