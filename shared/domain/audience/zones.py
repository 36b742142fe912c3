"""Time zones of a localized push: which there are, when each starts, and who belongs to it.

A push table writes a user's zone as its offset from UTC, `±HHMM` ("+0545", "-0330"). A localized job becomes a group
of jobs, one for each zone. The time of day of `startsAt`, read in UTC, is what every user's clock shows when the push
comes; so a zone starts at `startsAt` - offset. (Marathon has added the offset since 2019: `published_sign` does so.)

The zones are the offsets that some place of the tz database has had since 2000. They include standard and daylight
ones, half and quarter hours, and the few that were given up since and still stand in push tables. A group keeps the
offsets that the API made it with, so that workers with another version of the database divide the users alike.
Everybody else is `REST`: no zone is known, or the text is none of these offsets; their job starts as UTC's does.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from io import BytesIO
from zoneinfo import ZoneInfo

from shared.domain.errors import Invalid
from shared.domain.time_zones import read_rules, zone_names

REST = "rest"
UTC_ZONE = "+0000"
SKIP = "skip"
NEXT_DAY = "nextDay"

_SINCE = datetime(2000, 1, 1, tzinfo=UTC)
_UNTIL = datetime(2040, 1, 1, tzinfo=UTC)  # what the database knows of later years repeats these
_STEP = timedelta(days=60)  # every offset since 2000 was in force for longer at one place at least
_MINUTE = timedelta(minutes=1)
_MINUTE_NS = 60 * 1_000_000_000
_DAY_NS = 24 * 60 * _MINUTE_NS


@lru_cache(maxsize=1)
def offsets() -> tuple[str, ...]:
    """All offsets from west to east, as `±HHMM`. The first call in a process takes about 0.2 s."""
    minutes = {minutes for place in _places() for minutes in _minutes_of(place)}
    return tuple(map(_format_offset, sorted(minutes)))


def zones() -> tuple[str, ...]:
    """The zones of a group: all offsets from west to east, then `REST`."""
    return (*offsets(), REST)


def texts(zone: str) -> tuple[str, ...]:
    """The texts of which the `tz` of a zone's users is one. For `REST`, those of which it is none: NULL and all other
    texts are its."""
    if zone == REST:
        return tuple(spellings(offsets()))
    return (zone, "-0000") if zone == UTC_ZONE else (zone,)


def zone_of(tz: str | None, among: Sequence[str] | None = None) -> str:
    """The one zone that a user with this text belongs to. The zones are these offsets, by default all, and `REST`."""
    offset = UTC_ZONE if tz == "-0000" else tz
    return offset if offset is not None and offset in (offsets() if among is None else among) else REST


def spellings(among: Sequence[str]) -> list[str]:
    """The texts that name one of these offsets."""
    return [text for offset in among for text in texts(offset)]


def starts(starts_at_ns: int, zone: str, *, published_sign: bool) -> int:
    """When a zone's clocks show what UTC's show at `starts_at_ns`; both are in ns since the epoch."""
    offset_ns = _read(zone) * _MINUTE_NS
    return starts_at_ns + (offset_ns if published_sign else -offset_ns)


def check_strategy(strategy: str) -> None:
    """Raise `Invalid` for a `pastTimeStrategy` that there is not."""
    if strategy not in {"", SKIP, NEXT_DAY}:
        rule = f"it must be {SKIP} or {NEXT_DAY}"
        raise Invalid(f"invalid pastTimeStrategy: {rule}", field="pastTimeStrategy", value=strategy)


def zone_starts(starts_at_ns: int, now_ns: int, strategy: str, *, published_sign: bool) -> list[tuple[str, int]]:
    """The jobs of a group: each zone with its start, in ns since the epoch, in the order of `zones`.

    A zone whose start has passed gets no job with the strategy `skip`; with `nextDay`, or none, it starts 24 hours
    later. That is done once, as Marathon does it: what has passed even then stays a start in the past, and a job with
    such a start begins at once rather than never.

    Raises:
        Invalid: there is no such strategy (`pastTimeStrategy`), or the start has passed in all zones (`startsAt`).
    """
    check_strategy(strategy)
    wanted = [(zone, starts(starts_at_ns, zone, published_sign=published_sign)) for zone in zones()]
    if strategy != SKIP:
        return [(zone, start if start > now_ns else start + _DAY_NS) for zone, start in wanted]
    ahead = [(zone, start) for zone, start in wanted if start > now_ns]
    if not ahead:
        reason = f"invalid startsAt: it has passed in every time zone, and pastTimeStrategy is {SKIP}"
        raise Invalid(reason, field="startsAt", value=starts_at_ns)
    return ahead


def _places() -> Iterator[ZoneInfo]:
    contents = {read_rules(name) for name in zone_names()}
    return (ZoneInfo.from_file(BytesIO(content)) for content in contents)


def _minutes_of(place: ZoneInfo) -> Iterator[int]:
    instant = _SINCE
    while instant < _UNTIL:
        offset = instant.astimezone(place).utcoffset()
        assert offset is not None  # a place of the tz database has one for every instant
        if not offset % _MINUTE:
            yield offset // _MINUTE
        instant += _STEP


def _format_offset(minutes: int) -> str:
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02}{rest:02}"


def _read(zone: str) -> int:
    if zone == REST:
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[3:])
    return -minutes if zone.startswith("-") else minutes
