"""What happened to a job, as its page tells it: a timeline, and marks on the chart of its rate."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from services.api.http.pages.filters import known_time
from services.api.http.pages.pictures import Mark
from services.api.jobs.pages.job_words import Json
from shared.domain.jobs import events

_FAIL = str(events.EventState.FAIL)
_LABELS = {
    events.READ_FILE: "File read",
    events.PLAN: "Audience split into batches",
    events.SEND: "Sending",
    events.SEND_ENDED: "All batches done",
    events.SEND_DIRECT: "Sending",
    events.FINISH: "Closed",
    events.PAUSE: "Paused",
    events.RESUME: "Resumed",
    events.STOP: "Stopped",
    "job_retried": "Retried",
}
_BEGUN = {events.READ_FILE: "Reading the file", events.PLAN: "Splitting the audience into batches"}
_FAILED = {
    events.READ_FILE: "The file could not be read",
    events.PLAN: "The audience could not be split",
    events.SEND: "It failed",
    events.SEND_DIRECT: "It could not be sent",
    events.FINISH: "The control group's file could not be written",
}
_MARKED = {events.PAUSE: "mark", events.RESUME: "mark", events.STOP: "bad"}
_MOST_IDLE = 240
"""So many steps of a chart show at most that a job is held."""

_SILENT = {"starting", "finished", "Finished all batches"}


class TimelineEvent(Struct, frozen=True):
    """Something that happened: when, what, who did it (`""`: Carillon by itself), and what was said. `tone` is that of
    its mark on a chart, `""` without one."""

    at: datetime
    label: str
    by: str
    message: str
    tone: str
    is_bad: bool


def events_of(job: Json) -> Sequence[TimelineEvent]:
    """What happened to a job, the first first."""
    told = [
        _read(stage["name"], event, job["failure"]) for stage in job["statusEvents"] or () for event in stage["events"]
    ]
    first = TimelineEvent(known_time(job["createdAt"]), "Created", job["createdBy"], "", "", False)
    return [first, *sorted(told, key=lambda event: event.at)]


class RateChart(Struct, frozen=True):
    """How fast a job went: recipients a second at even distances from `begin` to `end`, and what happened meanwhile."""

    begin: datetime
    end: datetime
    rates: Sequence[float]
    marks: Sequence[Mark]


def chart_of(points: Sequence[Json], told: Sequence[TimelineEvent]) -> RateChart | None:
    """The chart of these points, as far as the last event that is marked on it: where a job is held, it is flat. `None`
    where nothing was sent."""
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
    is_begun = event["state"] == events.EventState.RUNNING
    is_trip = is_bad and stage == events.SEND and (not failure or event["message"] != failure)
    words = _FAILED if is_bad else _BEGUN if is_begun else _LABELS
    return TimelineEvent(
        at=known_time(event["createdAt"]),
        label="Tripped" if is_trip else words.get(stage) or _LABELS.get(stage, stage),
        by="" if by is None or by["kind"] == events.BY_ITSELF.kind else by["name"],
        message="" if event["message"] in _SILENT else event["message"],
        tone="bad" if is_trip else _MARKED.get(stage, ""),
        is_bad=is_bad,
    )
