"""`/ui/jobs`: the jobs of all apps that the reader may see, the newest first."""

from http import HTTPStatus

from msgspec import Struct

from services.api.http.pages.apps import read_apps
from services.api.http.pages.inner import ApiAnswer, ApiProblem
from services.api.http.pages.routes import NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit
from services.api.jobs.job_view import ENDED
from services.api.jobs.pages.job_words import STATES, Json, Shown, mean_rate, show_job

SECTION = NavSection("Jobs", "/jobs", order=10, group="Send")
_FILTERS, _TIMES = ("app", "status", "template", "by"), ("since", "until")
_MINUTES = len("2026-11-25T19:00")


class ListedJobRow(Struct, frozen=True):
    """A job or a localized push, how it stands, and recipients a second. `words` counts the zones of a push by state,
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
