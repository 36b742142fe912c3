"""A schedule in words, as people say it, and in pictures: when it fires next, and how late it was."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from services.api.http.pages.filters import known_time, number, span
from services.api.http.pages.pictures import Piece
from shared.domain.time_zones import time_zone

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MISFIRE = {"fire": "They fire late.", "skip": "They are skipped."}

_SLOTS = 26
_STEPS = tuple(timedelta(seconds=each) for each in (1, 5, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600))
_EPOCH = datetime.fromtimestamp(0, UTC)
_LATE = ((100, "good"), (1_000, "good"), (5_000, "wait"), (30_000, "bad"), (300_000, "bad"))  # ends, in milliseconds

Definition = Mapping[str, Any]


def tell_when(definition: Definition) -> str:
    """When it fires."""
    if "every" in definition:
        return f"Every {span(definition['every'])}"
    if "cron" in definition:
        zone = definition.get("timezone") or "UTC"
        return f"{_tell_cron(definition['cron'])}, {zone} time"
    count = len(definition.get("schedules", ()))
    if not count:
        return "At listed times"
    return "Once" if count == 1 else f"At {number(count)} times"


def tell_callback(callback: Mapping[str, Any]) -> str:
    """The request or the message that a schedule sends, in words."""
    data = callback["data"]
    match callback["type"]:
        case "http":
            return f"{data['method']} {data['url']}"
        case "rabbitmq" if data.get("queue"):
            return f"A message to the queue {data['queue']}"
        case "rabbitmq":
            return f"A message to the exchange {data.get('exchange')}, routing key “{data.get('routing_key') or ''}”"
        case _:
            return f"A record to the topic {data['topic']}" + (f", key {data['key']}" if data.get("key") else "")


def tell_misfire(misfire: str | Mapping[str, Any]) -> str:
    """The policy for late instants, in words."""
    if isinstance(misfire, str):
        return _MISFIRE[misfire]
    return f"They fire if they are at most {span(misfire['fire_within_seconds'])} late, and are skipped otherwise."


def tell_retry(retry: Mapping[str, Any]) -> str:
    """How often it is tried, and the pauses between."""
    attempts = retry["attempts"]
    if attempts == 1:
        return "Once. A refused occurrence becomes a dead letter at once."
    first, cap = span(retry["first_delay_seconds"]), span(retry["cap_seconds"])
    grows = f", each next pause is {retry['factor']:g} times as long, at most {cap}" if retry["factor"] > 1 else ""
    return f"Up to {attempts} times. The first pause is {first}{grows}."


def in_zone(instants: Sequence[str], timezone: str) -> list[tuple[str, str]]:
    """Each instant, and what the clocks of that zone show then, `""` without a zone."""
    if not timezone:
        return [(instant, "") for instant in instants]
    zone = time_zone(timezone)
    return [(instant, f"{known_time(instant).astimezone(zone):%a %d %b %H:%M}") for instant in instants]


def _tell_cron(line: str) -> str:
    """The commonest lines in words; others as they are."""
    minute, hour, day, month, weekday = line.split()
    if month != "*" or not minute.isdigit():
        return f"Cron “{line}”"
    if hour == "*" and day == weekday == "*":
        return f"Every hour at minute {minute}"
    days = _tell_days(day, weekday)
    if not hour.isdigit() or days is None:
        return f"Cron “{line}”"
    return f"{days} at {int(hour):02}:{int(minute):02}"


def _tell_days(day: str, weekday: str) -> str | None:
    if weekday == "*":
        return "Every day" if day == "*" else f"On day {day} of each month" if day.isdigit() else None
    if day != "*":
        return None
    if weekday in {"1-5", "mon-fri", "MON-FRI"}:
        return "Monday to Friday"
    return f"Every {_DAYS[int(weekday)]}" if weekday in set("01234567") else None


class DuePicture(Struct, frozen=True):
    """The instants between two moments: a column for each `step_seconds`, and their number. `is_whole` is false if the
    API has left some out: it ends at 50."""

    columns: list[Piece]
    begin: datetime
    end: datetime
    step_seconds: float
    total: int
    is_whole: bool


def picture_due(due: Mapping[str, Any], *, hours: int = 24) -> DuePicture:
    """The picture of an answer of `GET /schedules/due`. Columns begin at round times, so it does not move between two
    refreshes."""
    now, until = known_time(due["as_of"]), known_time(due["until"])
    step = next((step for step in _STEPS if until - now <= (_SLOTS - 2) * step), _STEPS[-1])
    begin = _round_down(now, step)
    count = min(_SLOTS, int((until - begin) / step) + 1)
    fires = [known_time(instant["at"]) for instant in due["instants"]]
    slots = Counter(min(count - 1, max(0, int((at - begin) / step))) for at in fires)
    starts = [begin + index * step for index in range(count)]
    columns = [Piece(_words(start, step), slots[index], "accent") for index, start in enumerate(starts)]
    is_whole = until >= now + timedelta(hours=hours) - timedelta(seconds=1)
    return DuePicture(columns, begin, begin + count * step, step.total_seconds(), len(fires), is_whole)


def picture_lateness(outcomes: Sequence[Mapping[str, Any]]) -> list[Piece]:
    """First attempts by delay; empty if nothing fired. Retries are left out, because they are late on purpose."""
    late = [outcome["late_ms"] for outcome in outcomes if outcome["attempt"] == 1]
    if not late:
        return []
    pieces, below = [], 0
    for limit, tone in _LATE:
        count = sum(below <= each < limit for each in late)
        pieces.append(Piece(f"< {span(limit / 1_000)}", count, tone))
        below = limit
    pieces.append(Piece("more", sum(each >= below for each in late), "bad"))
    return pieces


def _round_down(at: datetime, step: timedelta) -> datetime:
    return at - (at - _EPOCH) % step


def _words(start: datetime, step: timedelta) -> str:
    shape = "%H:%M:%S" if step < timedelta(minutes=1) else "%H:%M"
    return f"from {start:{shape}} UTC"
