"""`/ui/jobs`: the jobs of all apps that the reader may see, the newest first; and the words of all pages of jobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from services.api.http.pages.html import known_time, read_time, zone_name
from services.api.http.pages.namespaces import read_apps
from services.api.http.pages.pictures import Piece
from services.api.http.pages.routes import NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import ApiAnswer, ApiProblem, Visit
from services.api.jobs.job_view import ENDED, JobState
from shared.audience.rules.zones import REST
from shared.jobs.rules.jobs import PAUSABLE, RESUMABLE, STARTABLE, STOPPABLE

Json = Mapping[str, Any]
STATES = {
    JobState.SCHEDULED: "waiting",
    JobState.RUNNING: "running",
    JobState.PAUSED: "paused",
    JobState.CIRCUITBREAK: "tripped",
    JobState.STOPPED: "stopped",
    JobState.FAILED: "failed",
    JobState.EXPIRED: "expired",
    JobState.COMPLETED: "completed",
}
"""The word of each state on pages."""
MESSAGE_STATES = {
    "read": "accent",
    "delivered": "good",
    "sent": "good pale",
    "sending": "busy",
    "unsent": "idle",
    "unknown": "wait",
    "failed": "bad",
    "invalid": "bad pale",
}
"""The states of messages in the order in which a bar shows them, with the classes of their colours."""
BAR_TONES = {"completed": "good", "paused": "wait", "tripped": "bad", "failed": "bad", "expired": "wait"}


class Shown(Struct, frozen=True):
    """The state of a job in words, and the acts it allows. It `waits` while its start lies ahead, be it held or not.
    `began` is `None` for one that has not begun, or never did, `ended` for one that is open; `left` devices of its plan
    have got nothing."""

    word: str
    bar: str
    began: datetime | None
    ended: datetime | None
    waits: bool
    has_ended: bool
    may_pause: bool
    may_resume: bool
    may_stop: bool
    left: int
    nothing_sent: bool


def show_job(job: Json) -> Shown:
    state = job["state"]
    has_ended, word = state in ENDED, STATES[state]
    start = known_time(max(job["startsAt"], job["createdAt"]))
    ended = read_time(job["completedAt"] or job["updatedAt"]) if has_ended else None
    is_unplanned = job["startsAt"] != 0 and not job["totalTokens"]
    waits = state in STARTABLE or (state in RESUMABLE and is_unplanned)
    never_began = waits or (ended is not None and is_unplanned and start > ended)
    return Shown(
        word=word,
        bar=BAR_TONES.get(word, ""),
        began=None if never_began else start,
        ended=ended,
        waits=waits,
        has_ended=has_ended,
        may_pause=state in PAUSABLE,
        may_resume=state in RESUMABLE,
        may_stop=state in STOPPABLE,
        left=max(job["totalTokens"] - job["completedTokens"], 0),
        nothing_sent=state == JobState.COMPLETED and job["totalTokens"] > 0 and not job.get("sent", 1),
    )


def tell_in_zone(zone: str, value: Any) -> str:
    """A time in a job's zone; `""` without a zone or a time."""
    at = read_time(value)
    if at is None or not zone or zone == REST:
        return ""
    ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:]))
    return f"{at + (-ahead if zone[0] == '-' else ahead):%Y-%m-%d %H:%M:%S} in {zone_name(zone)}"


def mean_rate(job: Json, shown: Shown) -> float | None:
    """Devices a second of a job that has ended, over all its time."""
    if shown.began is None or shown.ended is None or not job["completedTokens"]:
        return None
    seconds = (shown.ended - shown.began).total_seconds()
    return job["completedTokens"] / seconds if seconds >= 1 else None


def device_pieces(sums: Json, left: int, *, has_ended: bool) -> Sequence[Piece]:
    return (
        Piece("sent", sums["sent"], "good"),
        Piece("failed", sums["failed"], "bad"),
        Piece("skipped", sums["skipped"], "wait"),
        Piece("held out", sums["heldOut"], "accent"),
        Piece("not reached" if has_ended else "to come", left, "rest"),
    )


def message_pieces(counts: Mapping[str, int]) -> list[Piece]:
    return [Piece(state, counts.get(state, 0), tone) for state, tone in MESSAGE_STATES.items()]


SECTION = NavSection("Jobs", "/jobs", order=10, group="Send")
_FILTERS, _TIMES = ("app", "status", "template", "by"), ("since", "until")
_MINUTES = len("2026-11-25T19:00")


class ListedJobRow(Struct, frozen=True):
    """A job or a localized push, its state, and recipients a second. `words` counts the zones of a push by state,
    `ended` those that have ended."""

    job: Json
    shown: Shown
    rate: float | None
    words: dict[str, int] = {}
    ended: int = 0


class JobListPages(PageSet):
    section = SECTION

    @PageRoute("/jobs", template="jobs/jobs.html", refresh_seconds=2, shared_by_roles=True)
    async def show_jobs(self, visit: Visit) -> Values:
        seen, wanted = await read_apps(visit), visit.query("app")
        values: Values = {
            "title": "Jobs",
            "apps": {"": "All apps", wanted: wanted or "All apps"} | {app["id"]: app["name"] for app in seen},
            "may_make": any(visit.may("operator", app=app["id"]) for app in seen),
            "states": {str(state): word for state, word in STATES.items()},
            "is_filtered": any(visit.query(name) for name in (*_FILTERS, *_TIMES)),
            "rows": (),
            "next": "",
        }
        try:
            found = await self._find(visit)
        except ApiProblem as problem:
            if problem.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            return values | {"problem": problem, "refresh_seconds": 0}
        return values | {"rows": list(map(_row, found.value)), "next": found.next}

    async def _find(self, visit: Visit) -> ApiAnswer:
        wanted = {name: visit.query(name).strip() for name in _FILTERS}
        times = {name: _as_instant(visit.query(name)) for name in _TIMES}
        return await visit.read_list("/jobs", grouped="true", **times, **wanted)


def _row(job: Json) -> ListedJobRow:
    shown, states = show_job(job), job.get("states", {})
    return ListedJobRow(
        job,
        shown,
        rate=float(job["rate"]) if shown.word == "running" else mean_rate(job, shown),
        words={STATES[state]: count for state, count in states.items()},
        ended=sum(count for state, count in states.items() if state in ENDED),
    )


def _as_instant(typed: str) -> str:
    """The value of a field for date and time, which has no zone, as an instant in UTC."""
    return f"{typed}:00Z" if len(typed) == _MINUTES else typed
