"""When schedules fire next, and how late they were, as columns of a picture."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from services.api.http.pages.filters import known_time, span
from services.api.http.pages.pictures import Piece

_SLOTS = 26
_STEPS = tuple(timedelta(seconds=each) for each in (1, 5, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600))
_EPOCH = datetime.fromtimestamp(0, UTC)
_LATE = ((100, "good"), (1_000, "good"), (5_000, "wait"), (30_000, "bad"), (300_000, "bad"))  # ends, in milliseconds


class DuePicture(Struct, frozen=True):
    """What fires between two moments, a column for each `step_seconds`, and how many that are together. `is_whole`
    tells that this is all of it: the API ends at 50 instants."""

    columns: list[Piece]
    begin: datetime
    end: datetime
    step_seconds: float
    total: int
    is_whole: bool


def picture_due(due: Mapping[str, Any], *, hours: int = 24) -> DuePicture:
    """The picture of what `GET /schedules/due` told. Columns begin at round times, so it stays still between two
    looks."""
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
    """How late attempts were, by bucket; empty where nothing fired. A retry's delay is no lateness of ours."""
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
