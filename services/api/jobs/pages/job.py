"""`/ui/jobs/{app}/{id}`: one job with its progress and its batches; and `/ui/groups`: the jobs of a localized push."""

from collections import Counter
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from services.api.http.pages.html import known_time, percent, zone_name
from services.api.http.pages.pictures import Mark, StripBlock
from services.api.http.pages.routes import MANY_DEVICES, FormRoute, Moved, PageRoute, PageSet, Values, check_name
from services.api.http.pages.visits import ApiProblem, Visit, address
from services.api.jobs.pages.job_list import (
    SECTION,
    Json,
    Shown,
    device_pieces,
    mean_rate,
    message_pieces,
    show_job,
    tell_in_zone,
)
from shared.jobs.rules import events
from shared.jobs.rules.batches import BatchStatus
from shared.jobs.rules.events import SILENT, label_of

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
        by="" if by["kind"] == events.BY_ITSELF.kind else by["name"],
        message="" if event["message"] in SILENT else event["message"],
        tone="bad" if is_trip else _MARKED.get(stage, ""),
        is_bad=is_bad,
    )


GROUP_PATH = "/groups/{app_id:str}/{group_id:str}"
_TONES = {
    "waiting": "wait",
    "running": "busy",
    "paused": "accent",
    "tripped": "bad",
    "failed": "bad",
    "expired": "wait",
    "stopped": "idle",
    "completed": "good",
}
_WITHDRAWN = {"stopped", "expired"}
_SHORTEST, _STEP = timedelta(hours=24), timedelta(hours=4)
_QUARTERS = 4


class ZoneRow(Struct, frozen=True):
    """A zone: its job as the API tells it, its state, and when it starts."""

    job: Json
    shown: Shown
    starts: datetime

    @property
    def devices(self) -> int:
        return int(self.job["devices"] or self.job["totalTokens"])

    @property
    def is_empty(self) -> bool:
        """Whether it is known to have no devices, and nothing failed."""
        return self.job["devices"] is not None and not self.devices and not self.job["failure"]

    @property
    def has_started(self) -> bool:
        """Whether its start has come, and found it neither stopped nor expired."""
        return not self.shown.waits and bool(self.job["totalTokens"] or self.shown.word not in _WITHDRAWN)


class DayAxis(Struct, frozen=True):
    """The time in which all zones start: whole hours, a day or somewhat more."""

    begin: datetime
    length: timedelta

    def place(self, at: datetime) -> float:
        """The position of an instant on the axis: 0 at its begin, 1 at its end."""
        return (at - self.begin) / self.length

    @property
    def ticks(self) -> list[datetime]:
        return [self.begin + self.length * quarter / _QUARTERS for quarter in range(_QUARTERS + 1)]


class GroupPages(PageSet):
    section = SECTION

    @PageRoute(GROUP_PATH, template="jobs/group.html", refresh_seconds=2, shared_by_roles=True)
    async def show_group(self, visit: Visit) -> Values:
        app_id, group_id = visit.path("app_id"), visit.path("group_id")
        group = await visit.read("/apps/{}/groups/{}", app_id, group_id)
        app = await visit.try_read("The app", "/apps/{}", app_id)
        rows = zone_rows(group)
        axis = day_axis(rows)
        left = sum(max(row.devices - row.job["completedTokens"], 0) for row in rows)
        has_ended = all(row.shown.has_ended for row in rows)
        return {
            "title": group["name"] or "Localized push",
            "group": group,
            "app": app,
            "rows": rows,
            "word": _word_for_all(rows),
            "local_time": f"{known_time(group['startsAt']):%H:%M}",
            "counts": _count_words(rows),
            "started": sum(row.has_started for row in rows),
            "planned": sum(row.devices for row in rows),
            "waiting": sum(row.shown.waits for row in rows),
            "tones": _TONES,
            "axis": axis,
            "blocks": strip_blocks(rows, axis),
            "at": axis.place(datetime.now(UTC)),
            "pieces": device_pieces(group, left, has_ended=has_ended),
            "left": group["totalTokens"] - group["completedTokens"],
            "may_move": {move: sum(getattr(row.shown, f"may_{move}") for row in rows) for move in SAID},
            "name": _word_to_type(group, app),
            "here_path": address("/groups/{}/{}", app_id, group_id),
        } | ({"refresh_seconds": 0} if has_ended else {})

    @FormRoute(GROUP_PATH, acts=("pause", "resume", "stop"), page="show_group")
    async def move_group(self, visit: Visit) -> Moved:
        ids = visit.path("app_id"), visit.path("group_id")
        if visit.act == "stop":
            group = await visit.read("/apps/{}/groups/{}", *ids)
            check_name(visit.form, _word_to_type(group, await visit.try_read("The app", "/apps/{}", ids[0])))
        await refuse_plainly(visit.send("PUT", f"/apps/{{}}/groups/{{}}/{visit.act}", *ids))
        return Moved(address("/groups/{}/{}", *ids), SAID[visit.act])


def zone_rows(group: Json) -> list[ZoneRow]:
    return sorted((_zone_row(zone, group) for zone in group["zones"]), key=lambda row: row.starts)


def day_axis(rows: Sequence[ZoneRow]) -> DayAxis:
    """An axis of a day, or as long as the starts of these zones need."""
    first, last = min(row.starts for row in rows), max(row.starts for row in rows)
    begin = first.replace(minute=0, second=0, microsecond=0)
    length = _SHORTEST
    while begin + length <= last + timedelta(hours=1):
        length += _STEP
    return DayAxis(begin, length)


def strip_blocks(rows: Sequence[ZoneRow], axis: DayAxis) -> list[StripBlock]:
    """A block for each zone at its start: zones east of Greenwich above the others, since the date line can bring two
    zones to the same moment. The progress of the zone's job fills it from below."""
    return [
        StripBlock(
            at=axis.place(row.starts),
            share=row.job["completedTokens"] / row.devices if row.devices else 0,
            tone=_TONES[row.shown.word],
            label=_describe(row),
            lane=int(not row.job["zone"].startswith("+")),
        )
        for row in rows
    ]


def _zone_row(zone: dict[str, Any], group: Json) -> ZoneRow:
    starts = known_time(zone["startsAt"])
    job = zone | {"createdAt": group["createdAt"], "updatedAt": zone["startsAt"]}
    return ZoneRow(job, show_job(job), starts)


def _describe(row: ZoneRow) -> str:
    done, planned = row.job["completedTokens"], row.devices
    share = f", {percent(done, planned)} of {planned:,} devices" if planned else ""
    return f"{zone_name(row.job['zone'])}, {row.shown.word}: starts {row.starts:%Y-%m-%d %H:%M} UTC{share}"


def _count_words(rows: Sequence[ZoneRow]) -> dict[str, int]:
    counts = Counter(row.shown.word for row in rows)
    return {word: counts[word] for word in _TONES if word in counts}


def _word_for_all(rows: Sequence[ZoneRow]) -> str:
    """One word for the whole push: the state that needs a person comes first, an ended one last."""
    words = _count_words(rows)
    order = ("tripped", "failed", "running", "paused", "waiting", "stopped", "expired", "completed")
    found = next(word for word in order if word in words)
    return "running" if found == "waiting" and "completed" in words else found


def _word_to_type(group: Json, app: Json | None) -> str:
    """The name that confirms stopping all. Zones that have not started are not counted yet, so any such zone asks for
    it."""
    is_large = group["totalTokens"] - group["completedTokens"] > MANY_DEVICES
    waits = any(row.shown.waits for row in zone_rows(group))
    return str(app["name"]) if app and (is_large or waits) else ""
