"""Schedules as tables and pages show them."""

from collections.abc import Sequence
from typing import Any

from services.cli.output.out import Fields, Output
from services.cli.output.tables import Json, TableColumn, count_things, state_column
from services.cli.output.times import format_span

_FIRST = 5
_AHEAD = 20  # of the next instants, the API tells so many


def schedule_columns(out: Output) -> Sequence[TableColumn]:
    """The columns of a list of schedules."""
    return (
        TableColumn("KEY", lambda each: each["key"], "id"),
        state_column("STATE", lambda each: each["state"]),
        TableColumn("WHEN", recurrence_word),
        TableColumn("CALLBACK", lambda each: callback_word(each["callback"])),
        TableColumn("CHANGED", lambda each: out.when(each["updated_at"]), "word"),
    )


def schedule_fields(out: Output, schedule: Json) -> Fields:
    """All fields of a schedule."""
    return [
        ("key", schedule["key"]),
        ("state", schedule["state"]),
        ("when", _when(schedule)),
        ("starts", out.when(schedule["starts_at"]) if schedule.get("starts_at") else ""),
        ("ends", out.when(schedule["ends_at"]) if schedule.get("ends_at") else ""),
        ("window", f"{schedule['window_seconds']:g} s" if schedule["window_seconds"] else ""),
        ("misfire", schedule["misfire"]),
        ("retry", schedule["retry"]),
        ("labels", [f"{name}: {value}" for name, value in schedule["labels"].items()]),
        ("callback", callback_word(schedule["callback"])),
        ("payload", schedule["callback"]["data"].get("payload", "")),
        ("next", next_instants(out, schedule, schedule.get("next", []))),
        ("next try", out.ahead(schedule["next_try_at"]) if schedule.get("next_try_at") else ""),
        ("outcomes", [_outcome(out, each) for each in schedule.get("outcomes", [])]),
        ("made", out.when(schedule["created_at"])),
        ("changed", out.when(schedule["updated_at"])),
        ("left out", "personal data: you are a viewer" if schedule["redacted"] else ""),
    ]


def next_instants(out: Output, schedule: Json, instants: Sequence[str]) -> list[str]:
    """The first instants of a schedule, in the zone of its cron line."""
    zone = schedule.get("timezone") or "UTC" if schedule.get("cron") else ""
    return [out.ahead(each, zone) for each in instants[:_FIRST]]


def recurrence_word(schedule: Json) -> str:
    """Its recurrence in a word."""
    if cron := schedule.get("cron"):
        return f"{cron} ({schedule.get('timezone', 'UTC')})"
    if every := schedule.get("every"):
        return f"every {every} s"
    instants = schedule.get("schedules") or []
    return count_things(len(instants), "instant") if instants else "instants"


def _when(schedule: Json) -> str:
    """When it fires, and how many instants of a list are left."""
    listed, ahead = len(schedule.get("schedules") or []), len(schedule.get("next") or [])
    if schedule["state"] != "paused" and ahead < min(listed, _AHEAD):
        return f"{ahead} of {count_things(listed, 'instant')} left"
    return recurrence_word(schedule)


def callback_word(callback: Any) -> str:
    """The target of its message in a word."""
    if not callback:
        return ""
    data = callback["data"]
    place = data.get("url") or data.get("queue") or data.get("topic") or data.get("exchange") or ""
    return f"{callback['type']} {place}".rstrip()


def _lateness(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 1_000 else format_span(milliseconds / 1_000)


def _outcome(out: Output, outcome: Json) -> str:
    late = f"{_lateness(outcome['late_ms'])} late"
    words = (out.when(outcome["at"]), outcome["result"], f"try {outcome['attempt']}", late)
    return "  ".join([*words, outcome["error"]]).rstrip()
