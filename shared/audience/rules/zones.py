"""Time zones of a localized push: the zones, their starts, and their devices.

A localized job becomes a group of jobs, one for each zone. The time of day of `startsAt`, read in UTC, is the time on
every user's clock at the push, so a zone starts at `startsAt` - offset. (Marathon has added the offset since 2019:
`published_sign` does so.)

The zones are the offsets of any place of the tz database since 2000. They include standard and daylight ones, half and
quarter hours, and the few given up since that are still in push tables. A group keeps the offsets of the API that made
it, so that workers with another version of the database divide the devices alike.

A push table has a device's zone as an offset from UTC (`+0545`, `-03:30`, `UTC+12`) or as the name of a place
(`Asia/Tokyo`). Only `read_zone` reads it. An offset between two zones belongs to the one to the west, as in Marathon's
documents: its clocks are past the time when the zone starts, never before it. All other devices are in `REST`, which
starts as UTC does.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from io import BytesIO
from zoneinfo import ZoneInfo

from msgspec import Struct

from shared.audience.rules.columns import without_zero_width
from shared.core.errors import Invalid
from shared.core.instants import EPOCH
from shared.core.time_zones import read_rules, time_zone, zone_names

REST = "rest"
SKIP = "skip"
NEXT_DAY = "nextDay"

_SINCE = datetime(2000, 1, 1, tzinfo=UTC)
_UNTIL = datetime(2040, 1, 1, tzinfo=UTC)  # the rules of later years repeat these
_STEP = timedelta(days=60)  # every offset since 2000 lasted longer at one place at least
_MINUTE = timedelta(minutes=1)
_MINUTE_NS = 60 * 1_000_000_000
_DAY_NS = 24 * 60 * _MINUTE_NS

_MINUSES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\ufe63\uff0d\u2212", "-"))
_OFFSET = re.compile(r"(?:utc|gmt|ut)? ?([+-])([0-9]{1,2}(?=:|$)|[0-9]{2})(?::?([0-5][0-9]))?")
_MOST_HOURS = 15  # as PostgreSQL reads offsets; no place is beyond +1400 and -1200

SHOWN_VALUES = 3


class ZoneRules(Struct, frozen=True):
    """The rules by which a group divides its devices: its offsets from west to east, and the day whose rules apply to a
    place. `wall_clock` is the time on clocks at the start of their zone, read in UTC, in ns since the epoch; those of
    the zones `next_day` show it 24 hours later."""

    offsets: tuple[str, ...]
    wall_clock: int
    next_day: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def offsets() -> tuple[str, ...]:
    """All offsets from west to east, as `±HHMM`. The first call in a process takes about 0.2 s."""
    minutes = {minutes for place in _places() for minutes in _minutes_of(place)}
    return tuple(map(_format_offset, sorted(minutes)))


def zones() -> tuple[str, ...]:
    """The zones of a group: all offsets from west to east, then `REST`."""
    return (*offsets(), REST)


def zone_of(tz: str | None, rules: ZoneRules) -> str:
    """The zone of a device with this text: one of the offsets, or `REST`."""
    found = None if tz is None else read_zone(tz)
    if found is None:
        return REST
    if isinstance(found, int):
        return _zone_below(found, rules.offsets)
    zone = _zone_below(_minutes_at(found, rules.wall_clock), rules.offsets)
    if zone in rules.next_day:
        zone = _zone_below(_minutes_at(found, rules.wall_clock + _DAY_NS), rules.offsets)
    return zone


@lru_cache(maxsize=4096)
def read_zone(tz: str) -> int | str | None:
    """The minutes east of UTC of a text, or its place's name, or `None`. Case does not count."""
    text = without_zero_width(tz).strip().lower().translate(_MINUSES)
    if name := _places_by_name().get(text.replace(" ", "_")):
        return name
    if text in {"z", "ut"}:
        return 0
    match = _OFFSET.fullmatch(text)
    if match is None or int(match[2]) > _MOST_HOURS:
        return None
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return -minutes if match[1] == "-" else minutes


def describe_rest(devices: int, values: Sequence[str | None]) -> str:
    number = f"{devices:,} devices are" if devices != 1 else "1 device is"
    shown = ", ".join("none" if value is None else repr(value) for value in values[:SHOWN_VALUES])
    return f"{number} in the zone {REST}, which starts with UTC, because tz names no time zone: {shown}."


def starts(starts_at_ns: int, zone: str, *, published_sign: bool) -> int:
    """The time when a zone's clocks show UTC's time of `starts_at_ns`; both are in ns since the epoch."""
    offset_ns = _read(zone) * _MINUTE_NS
    return starts_at_ns + (offset_ns if published_sign else -offset_ns)


def check_strategy(strategy: str) -> None:
    if strategy not in {"", SKIP, NEXT_DAY}:
        rule = f"it must be {SKIP} or {NEXT_DAY}"
        raise Invalid(f"invalid pastTimeStrategy: {rule}", field="pastTimeStrategy", value=strategy)


def zone_starts(starts_at_ns: int, now_ns: int, strategy: str, *, published_sign: bool) -> list[tuple[str, int]]:
    """The jobs of a group: each zone with its start, in ns since the epoch, in the order of `zones`.

    A zone with a past start gets no job with the strategy `skip`; with `nextDay`, or none, it starts 24 hours later.
    That is done once, as in Marathon: a start that is past even then stays, and its job begins at once rather than
    never.
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


def _zone_below(minutes: int, among: tuple[str, ...]) -> str:
    """The zone of this offset, or the next one to the west of it; west of all zones, the first one."""
    return among[max(bisect_right(_minutes_of_all(among), minutes) - 1, 0)]


@lru_cache(maxsize=64)
def _minutes_of_all(among: tuple[str, ...]) -> list[int]:
    return [*map(_read, among)]


def _minutes_at(name: str, wall_clock_ns: int) -> int:
    """The offset of a place when its clocks show this time; in a gap the one before it, and for a repeated time the
    first."""
    wall = (EPOCH + timedelta(microseconds=wall_clock_ns // 1000)).replace(tzinfo=time_zone(name))
    offset = wall.utcoffset()
    assert offset is not None  # a place of the tz database has one for every instant
    return offset // _MINUTE


@cache
def _places_by_name() -> dict[str, str]:
    return {name.lower(): name for name in zone_names() if name != "Factory"}  # "Factory" means that no zone is set


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
