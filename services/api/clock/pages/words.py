"""Schedules in words: when they fire, their callbacks, and their rules."""

from collections.abc import Mapping
from typing import Any

from services.api.http.pages.html import known_time, number, span

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MISFIRE = {"fire": "They fire late.", "skip": "They are skipped."}
_OVERLAP = {
    "skip": "The occurrence is skipped.",
    "queue": "The occurrence waits until that job has ended.",
    "allow": "Another job starts.",
}


def tell_when(definition: Mapping[str, Any]) -> str:
    if "every" in definition:
        return f"Every {span(definition['every'])}"
    if "cron" in definition:
        zone = definition.get("timezone") or "UTC"
        return f"{_tell_cron(definition['cron'])}, {zone} time"
    if "anchor" in definition:
        at = f"{known_time(definition['anchor']):%d %b %Y %H:%M} UTC"
        return f"At {number(len(definition['offsets']))} offsets from {at}"
    count = len(definition.get("schedules", ()))
    if not count:
        return "At listed times"
    return "Once" if count == 1 else f"At {number(count)} times"


def tell_callback(callback: Mapping[str, Any]) -> str:
    data = callback["data"]
    match callback["type"]:
        case "http":
            return f"{data['method']} {data['url']}"
        case "rabbitmq" if data.get("queue"):
            return f"A message to the queue {data['queue']}"
        case "rabbitmq":
            return f"A message to the exchange {data.get('exchange')}, routing key “{data.get('routing_key') or ''}”"
        case "job":
            return f"A job that sends the template {data['template']}"
        case _:
            return f"A record to the topic {data['topic']}" + (f", key {data['key']}" if data.get("key") else "")


def tell_overlap(schedule: Mapping[str, Any]) -> str:
    callback = schedule["callback"]
    default = "skip" if callback["type"] == "job" else ""
    return _OVERLAP.get(callback["data"].get("overlap", default), "")


def tell_misfire(misfire: str | Mapping[str, Any]) -> str:
    if isinstance(misfire, str):
        return _MISFIRE[misfire]
    return f"They fire if they are at most {span(misfire['fire_within_seconds'])} late, and are skipped otherwise."


def tell_retry(retry: Mapping[str, Any]) -> str:
    attempts = retry["attempts"]
    if attempts == 1:
        return "Once. A refused occurrence becomes a dead letter at once."
    first, cap = span(retry["first_delay_seconds"]), span(retry["cap_seconds"])
    grows = f", each next pause is {retry['factor']:g} times as long, at most {cap}" if retry["factor"] > 1 else ""
    return f"Up to {attempts} times. The first pause is {first}{grows}."


def _tell_cron(line: str) -> str:
    """Common lines in words; others as they are."""
    minute, hour, day, month, weekday = line.split()
    if month != "*" or not minute.isdigit():
        return f"Cron “{line}”"
    if hour == "*" and day == weekday == "*":
        return f"Every hour at minute {minute}"
    days = _tell_days(day, weekday)
    if not hour.isdigit() or days is None:
        return f"Cron “{line}”"
    return f"{days} at {int(hour):02}:{int(minute):02}"


def _tell_days(day: str, weekday: str) -> str | None:
    if weekday == "*":
        return "Every day" if day == "*" else f"On day {day} of each month" if day.isdigit() else None
    if day != "*":
        return None
    if weekday in {"1-5", "mon-fri", "MON-FRI"}:
        return "Monday to Friday"
    return f"Every {_DAYS[int(weekday)]}" if weekday in set("01234567") else None
