"""`/ui/jobs/…`: one job, what became of its devices, and what may be done to it."""

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.typed import MANY_DEVICES, check_name
from services.api.http.pages.visits import Visit, address
from services.api.jobs.pages.job_events import chart_of, events_of
from services.api.jobs.pages.job_words import (
    Json,
    device_pieces,
    mean_rate,
    message_pieces,
    show_job,
    tell_in_zone,
    zone_name,
)
from shared.domain.jobs.batches import BatchStatus

PATH = "/jobs/{app_id:str}/{job_id:str}"
SAID = {"pause": "paused", "resume": "resumed", "stop": "stopped"}
VIEWS = {"": "Progress", "batches": "Batches", "samples": "Sample messages", "details": "Details"}
_SETTLES = timedelta(seconds=30)
_SLOW_REFRESH = 5


class JobPages(PageSet):
    """A job."""

    @PageRoute(PATH, template="jobs/job.html", refresh_seconds=1, section="/jobs", shared_by_roles=True)
    async def show_job(self, visit: Visit) -> Values:
        """A job: how far it is, or its batches, or what devices get, or what it was made with."""
        app_id, job_id = visit.path("app_id"), visit.path("job_id")
        job = await visit.read("/apps/{}/jobs/{}", app_id, job_id)
        shown, view = show_job(job), visit.query("show")
        values: Values = {
            "title": job["templateName"] or "Job",
            "job": job,
            "shown": shown,
            "messages": job.get("messages"),
            "queue": job.get("queue"),
            "here_path": address("/jobs/{}/{}", app_id, job_id),
            "views": {name: label for name, label in VIEWS.items() if name != "samples" or _has_samples(visit, job)},
            "view": view if view in VIEWS else "",
            "zone_name": zone_name,
            "in_zone": partial(tell_in_zone, job["zone"]),
            "name": _name_to_type(job, shown.left),
            "batch_states": [str(status) for status in BatchStatus],
        }
        return values | await self._fill(visit, values) | _refresh(job, view)

    @FormRoute(PATH + "/pause", page="show_job")
    async def pause_job(self, visit: Visit) -> Moved:
        """Hold it."""
        return await self._move(visit, "pause")

    @FormRoute(PATH + "/resume", page="show_job")
    async def resume_job(self, visit: Visit) -> Moved:
        """Let it go on."""
        return await self._move(visit, "resume")

    @FormRoute(PATH + "/stop", page="show_job")
    async def stop_job(self, visit: Visit) -> Moved:
        """End it for good."""
        job = await visit.read("/apps/{}/jobs/{}", visit.path("app_id"), visit.path("job_id"))
        check_name(visit.form, _name_to_type(job, show_job(job).left))
        return await self._move(visit, "stop")

    async def _move(self, visit: Visit, move: str) -> Moved:
        ids = visit.path("app_id"), visit.path("job_id")
        await refuse_plainly(visit.send("PUT", "/apps/{}/jobs/{}/" + move, *ids))
        return Moved(address("/jobs/{}/{}", *ids), said=SAID[move])

    async def _fill(self, visit: Visit, values: Values) -> Values:
        match values["view"]:
            case "batches":
                return await self._fill_batches(visit, values["job"])
            case "samples" if "samples" in values["views"]:
                return await self._fill_samples(visit, values["job"])
            case "details":
                return {}
            case _:
                return await self._fill_progress(visit, values["job"]) | {"view": ""}

    async def _fill_progress(self, visit: Visit, job: Json) -> Values:
        shown = show_job(job)
        told = await visit.try_read("The rate", "/apps/{}/jobs/{}/rate", job["appId"], job["id"])
        events = events_of(job)
        return {
            "pieces": device_pieces(job, shown.left, has_ended=shown.has_ended),
            "message_pieces": message_pieces(job["messages"]) if "messages" in job else (),
            "chart": chart_of(told["points"], events) if told else None,
            "events": events,
            "mean": mean_rate(job, shown),
        }

    async def _fill_batches(self, visit: Visit, job: Json) -> Values:
        found = await visit.read_list("/apps/{}/jobs/{}/batches", job["appId"], job["id"], state=visit.query("state"))
        return {"batches": found.value, "next": found.next}

    async def _fill_samples(self, visit: Visit, job: Json) -> Values:
        told = await visit.try_read("Sample messages", "/apps/{}/jobs/{}/samples", job["appId"], job["id"])
        return {"samples": told["samples"] if told else [], "most_bytes": told["maxRecordBytes"] if told else None}


async def refuse_plainly(move: Awaitable[Any]) -> None:
    """Make a move. That a state does not allow it is told by 403, as Marathon does it: here it is a conflict, since no
    role is missing. Raises `ApiProblem`."""
    try:
        await move
    except ApiProblem as problem:
        if problem.status == HTTPStatus.FORBIDDEN and problem.field == "status":
            raise ApiProblem(HTTPStatus.CONFLICT, problem.detail, problem.field) from None
        raise


def _name_to_type(job: Json, left: int) -> str:
    """What is typed before it is stopped, `""` for what concerns few devices."""
    return str(job["app"]["name"]) if left > MANY_DEVICES else ""


def _has_samples(visit: Visit, job: Json) -> bool:
    """Whether there are records to be shown: messages have none, and records are personal."""
    return not job.get("credentialId") and visit.may("operator", app=job["appId"])


def _refresh(job: Json, view: str) -> Values:
    """How often the page asks for itself: never once all is settled."""
    shown = show_job(job)
    is_settled = job["completedBatches"] >= job["totalBatches"]
    if shown.ended is not None and (is_settled or datetime.now(UTC) - shown.ended > _SETTLES):
        return {"refresh_seconds": 0}
    return {"refresh_seconds": _SLOW_REFRESH} if view == "samples" else {}
