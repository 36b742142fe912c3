"""`/ui`: whether all is well, what runs, and what waits."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from math import isinf
from typing import Any

from services.api.http.pages.filters import known_time
from services.api.http.pages.pictures import Piece
from services.api.http.pages.routes import NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit

HOUR = 60

_LATE_TONES = ((1.0, "good"), (5.0, "wait"))
_FAILED = "failed"
_FAILED_SECONDS = 10
_SHOWN = 5
"""How many dead letters and failed jobs the page lists."""

Minutes = Sequence[Mapping[str, Any]]


class OverviewPages(PageSet):
    section = NavSection("Overview", "", order=0)

    def __init__(self, glance: Callable[[], Awaitable[Mapping[str, int]]] | None = None) -> None:
        self.glance = glance

    @PageRoute("/", template="console/overview.html", refresh_seconds=2, shared_by_roles=True)
    async def show_overview(self, visit: Visit) -> Values:
        seen = await visit.read("/overview")
        day_ago = f"{known_time(seen['asOf']) - timedelta(days=1):%Y-%m-%dT%H:%M}"
        failed_jobs = await visit.attempt("Failed jobs", _read_failed(visit, day_ago))
        letters = None
        if seen["deadLetters"]:
            letters = await visit.try_read("The newest dead letters", "/dead-letters", namespace="*", limit=_SHOWN)
        minutes = spread(seen["minutes"], known_time(seen["asOf"]))
        is_quiet = not (seen["partial"] or seen["minutes"] or any(seen["jobs"]["open"].values()) or seen["deadLetters"])
        apps = await visit.try_read("Apps", "/apps", limit=1) if is_quiet else None
        return {
            "title": "Overview",
            "seen": seen,
            "is_new": apps == [],
            "paused": seen["jobs"]["open"].get("paused"),
            "minutes": minutes,
            "recipients": [total(minute["recipients"]) for minute in minutes],
            "messages": [minute["messages"].get("accepted", 0) for minute in minutes],
            "deliveries": [minute["deliveries"].get("success", 0) for minute in minutes],
            "fired": [count_delivered(minute["fired"]) for minute in minutes],
            "lateness": lateness(minutes),
            "failed": sum(minute["recipients"].get(_FAILED, 0) for minute in minutes),
            "died": sum(minute.get("deadLetters", 0) for minute in minutes),
            "processes": count_roles(seen["processes"]),
            "letters": letters or [],
            "failed_jobs": failed_jobs or [],
            "day_ago": day_ago,
        }


async def _read_failed(visit: Visit, since: str) -> Any:
    """The newest failed jobs since `since`, shared by readers with the same roles."""

    async def read() -> Any:
        return await visit.read("/jobs", status=_FAILED, since=f"{since}:00Z", limit=_SHOWN)

    return await visit.read_shared(("failed jobs", visit.caller.rights), read, seconds=_FAILED_SECONDS)


def spread(minutes: Minutes, now: datetime) -> list[Mapping[str, Any]]:
    """The last hour, minute by minute. Minutes in which nothing happened are left out of the answer; here they are
    empty."""
    known = {minute["at"][:16]: minute for minute in minutes}
    starts = [now - timedelta(minutes=ago) for ago in range(HOUR - 1, -1, -1)]
    empty = {
        "recipients": {},
        "messages": {},
        "deliveries": {},
        "fired": {},
        "lateness": {},
        "retries": 0,
        "serverErrors": 0,
    }
    return [known.get(f"{start:%Y-%m-%dT%H:%M}", empty) for start in starts]


def total(counts: Mapping[str, int]) -> int:
    return sum(counts.values())


def count_delivered(fired: Mapping[str, int]) -> int:
    """How many instants reached their target; the others are attempts that failed."""
    return sum(count for kind, count in fired.items() if kind.endswith("/fired"))


def lateness(minutes: Minutes) -> list[Piece]:
    """How late occurrences fired, by the ends of the buckets, the earliest first."""
    counts: dict[float, int] = {}
    for minute in minutes:
        for end, count in minute["lateness"].items():
            counts[float(end)] = counts.get(float(end), 0) + count
    return [Piece(_words(end), counts[end], _tone(end / 1e6)) for end in sorted(counts)]


def count_roles(processes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    roles: dict[str, dict[str, int]] = {}
    for process in processes:
        for role in process["roles"]:
            states = roles.setdefault(role, {})
            states[process["state"]] = states.get(process["state"], 0) + 1
    return dict(sorted(roles.items()))


def _words(microseconds: float) -> str:
    if isinf(microseconds):
        return "more"
    seconds = microseconds / 1e6
    return f"up to {seconds * 1_000:g} ms" if seconds < 1 else f"up to {seconds:g} s"


def _tone(seconds: float) -> str:
    return next((tone for limit, tone in _LATE_TONES if seconds <= limit), "bad")
