"""`/ui/jobs`: the jobs of all apps that the reader may see, the newest first."""

from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus

from msgspec import Struct
from msgspec.structs import replace

from services.api.http.pages.apps import read_apps
from services.api.http.pages.inner import ApiAnswer, ApiProblem
from services.api.http.pages.routes import NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit
from services.api.jobs.pages.job_words import STATES, Json, Shown, mean_rate, show_job

SECTION = NavSection("Jobs", "/jobs", order=10, group="Send")
_FILTERS, _TIMES = ("app", "status", "template", "by"), ("since", "until")
_MINUTES = len("2026-11-25T19:00")


class ListedJobRow(Struct, frozen=True):
    """A job, how it stands, and devices a second; or a localized push, which has the rows of those of its `zones` that
    are on this page."""

    job: Json
    shown: Shown
    rate: float | None = None
    zones: list["ListedJobRow"] = []

    @property
    def words(self) -> dict[str, int]:
        """How many of the zones stand how."""
        return dict(Counter(zone.shown.word for zone in self.zones))


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
        return values | {"rows": fold_zones(list(map(_row, found.value))), "next": found.next}

    async def _find(self, visit: Visit) -> ApiAnswer:
        wanted = {name: visit.query(name).strip() for name in _FILTERS}
        times = {name: _as_instant(visit.query(name)) for name in _TIMES}
        return await visit.read_list("/jobs", **times, **wanted)


def fold_zones(rows: Sequence[ListedJobRow]) -> list[ListedJobRow]:
    """The rows, with those of one localized push as one, in the place of the newest."""
    folded: dict[str, ListedJobRow] = {}
    for row in rows:
        key = row.job["jobGroupId"] if row.job["zone"] else row.job["id"]
        first = folded.get(key)
        if first is None:
            folded[key] = replace(row, zones=[row] if row.job["zone"] else [])
        else:
            first.zones.append(row)
    return list(folded.values())


def _row(job: Json) -> ListedJobRow:
    shown = show_job(job)
    if shown.word != "running":
        return ListedJobRow(job, shown, rate=mean_rate(job, shown))
    # Messages are counted when their batch ends, which may be long after it began.
    is_unknown = job.get("credentialId") and not job["rate"]
    return ListedJobRow(job, shown, rate=None if is_unknown else float(job["rate"]))


def _as_instant(typed: str) -> str:
    """The value of a field for date and time, which has no zone, as an instant in UTC."""
    return f"{typed}:00Z" if len(typed) == _MINUTES else typed
