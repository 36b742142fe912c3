"""`/ui/jobs/…`: one job, what became of its devices, and what may be done to it."""

from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from services.api.http.pages.filters import known_time
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.pictures import Mark
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.typed import MANY_DEVICES, check_name
from services.api.http.pages.visits import Visit, address
from services.api.jobs.pages.job_list import SECTION
from services.api.jobs.pages.job_words import (
    Json,
    device_pieces,
    mean_rate,
    message_pieces,
    show_job,
    tell_in_zone,
)
from shared.domain.jobs import events
from shared.domain.jobs.batches import BatchStatus
from shared.domain.jobs.words import SILENT, label_of

PATH = "/jobs/{app_id:str}/{job_id:str}"
SAID = {"pause": "paused", "resume": "resumed", "stop": "stopped"}
VIEWS = {"": "Progress", "batches": "Batches", "samples": "Sample messages", "details": "Details"}
_SETTLES = timedelta(seconds=30)
_SLOW_REFRESH = 5

_FAIL = str(events.EventState.FAIL)
_MARKED = {events.PAUSE: "mark", events.RESUME: "mark", events.STOP: "bad"}
_MOST_IDLE = 240
"""The most steps of a chart in which a held job sends nothing."""


class JobPages(PageSet):
    section = SECTION

    @PageRoute(PATH, template="jobs/job.html", refresh_seconds=1, shared_by_roles=True)
    async def show_job(self, visit: Visit) -> Values:
        app_id, job_id = visit.path("app_id"), visit.path("job_id")
        job = await visit.read("/apps/{}/jobs/{}", app_id, job_id)
        shown, view = show_job(job), visit.query("show")
        values: Values = {
            "title": job["name"] or "Job",
            "job": job,
            "shown": shown,
            "messages": job.get("messages"),
            "queue": job.get("queue"),
            "here_path": address("/jobs/{}/{}", app_id, job_id),
            "views": {name: label for name, label in VIEWS.items() if name != "samples" or _has_samples(visit, job)},
            "view": view if view in VIEWS else "",
            "in_zone": partial(tell_in_zone, job["zone"]),
            "name": _name_to_type(job),
            "batch_states": [str(status) for status in BatchStatus],
        }
        return values | await self._fill(visit, values) | _refresh(job, view)

    @FormRoute(PATH, acts=("pause", "resume", "stop"), page="show_job")
    async def move_job(self, visit: Visit) -> Moved:
        ids = visit.path("app_id"), visit.path("job_id")
        if visit.act == "stop":
            job = await visit.read("/apps/{}/jobs/{}", *ids)
            check_name(visit.form, _name_to_type(job))
        await refuse_plainly(visit.send("PUT", f"/apps/{{}}/jobs/{{}}/{visit.act}", *ids))
        return Moved(address("/jobs/{}/{}", *ids), SAID[visit.act])

    async def _fill(self, visit: Visit, values: Values) -> Values:
        job, ids = values["job"], visit.parts
        match values["view"]:
            case "batches":
                found = await visit.read_list("/apps/{}/jobs/{}/batches", *ids, state=visit.query("state"))
                return {"batches": found.value, "next": found.next}
            case "samples" if "samples" in values["views"]:
                told = await visit.try_read("Sample messages", "/apps/{}/jobs/{}/samples", *ids)
                return {
                    "samples": told["samples"] if told else [],
                    "most_bytes": told["maxRecordBytes"] if told else None,
                }
            case "details":
                return {}
            case _:
                shown, happened = values["shown"], events_of(job)
                told = await visit.try_read("The rate", "/apps/{}/jobs/{}/rate", *ids)
                return {
                    "view": "",
                    "pieces": device_pieces(job, shown.left, has_ended=shown.has_ended),
                    "message_pieces": message_pieces(job["messages"]) if "messages" in job else (),
                    "chart": chart_of(told["points"], happened) if told else None,
                    "events": happened,
                    "mean": mean_rate(job, shown),
                }


async def refuse_plainly(move: Awaitable[Any]) -> None:
    """Make a move. That a state does not allow it is told by 403, as Marathon does it: here it is a conflict, since no
    role is missing. Raises `ApiProblem`."""
    try:
        await move
    except ApiProblem as problem:
        if problem.status == HTTPStatus.FORBIDDEN and problem.field == "status":
            raise ApiProblem(HTTPStatus.CONFLICT, problem.detail, problem.field) from None
        raise


def _name_to_type(job: Json) -> str:
    return str(job["app"]["name"]) if show_job(job).left > MANY_DEVICES else ""


def _has_samples(visit: Visit, job: Json) -> bool:
    """Whether there are records to show: messages have none, and records are personal."""
    return not job.get("credentialId") and visit.may("operator", app=job["appId"])


def _refresh(job: Json, view: str) -> Values:
    shown = show_job(job)
    is_settled = job["completedBatches"] >= job["totalBatches"]
    if shown.ended is not None and (is_settled or datetime.now(UTC) - shown.ended > _SETTLES):
        return {"refresh_seconds": 0}
    return {"refresh_seconds": _SLOW_REFRESH} if view == "samples" else {}


class TimelineEvent(Struct, frozen=True):
    """An event of a job. `by` is `""` for Carillon itself; `tone` is `""` for an event without a mark on the chart."""

    at: datetime
    label: str
    by: str
    message: str
    tone: str
    is_bad: bool


def events_of(job: Json) -> Sequence[TimelineEvent]:
    told = [
        _read(stage["name"], event, job["failure"]) for stage in job["statusEvents"] or () for event in stage["events"]
    ]
    first = TimelineEvent(known_time(job["createdAt"]), "Created", job["createdBy"], "", "", False)
    return [first, *sorted(told, key=lambda event: event.at)]


class RateChart(Struct, frozen=True):
    """The recipients per second of a job at even distances from `begin` to `end`, and the events between."""

    begin: datetime
    end: datetime
    rates: Sequence[float]
    marks: Sequence[Mark]


def chart_of(points: Sequence[Json], told: Sequence[TimelineEvent]) -> RateChart | None:
    """The chart of these points up to the last marked event; it is flat while the job is held. `None` if nothing was
    sent."""
    times = [known_time(point["at"]) for point in points]
    if not times or not any(point["perSecond"] for point in points):
        return None
    marked = [event for event in told if event.tone]
    step = times[1] - times[0] if len(times) > 1 else timedelta(seconds=1)
    idle = max((event.at - times[-1] for event in marked), default=timedelta()) // step
    rates = [point["perSecond"] for point in points] + [0.0] * min(max(idle, 0), _MOST_IDLE)
    end = times[0] + step * (len(rates) - 1)
    length = max(end - times[0], step)
    marks = [
        Mark((event.at - times[0]) / length, f"{event.label} at {event.at:%H:%M:%S} UTC", event.tone)
        for event in marked
    ]
    return RateChart(times[0], end, rates, marks)


def _read(stage: str, event: dict[str, Any], failure: str) -> TimelineEvent:
    by, is_bad = event["by"], event["state"] == _FAIL
    is_trip = is_bad and stage == events.SEND and (not failure or event["message"] != failure)
    return TimelineEvent(
        at=known_time(event["createdAt"]),
        label="Tripped" if is_trip else label_of(stage, event["state"]),
        by="" if by is None or by["kind"] == events.BY_ITSELF.kind else by["name"],
        message="" if event["message"] in SILENT else event["message"],
        tone="bad" if is_trip else _MARKED.get(stage, ""),
        is_bad=is_bad,
    )
