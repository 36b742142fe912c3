"""A schedule's definition as the fields of a form, which are named as the API names them in its refusals."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from services.api.http.pages.typed import read_json, read_number, read_pairs

_TIMES = ("starts_at", "ends_at")
_NUMBERS = ("max_occurrences", "window_seconds")
_RETRY = ("attempts", "first_delay_seconds", "factor", "cap_seconds")
_DATA = {
    "http": ("url", "method", "secret"),
    "rabbitmq": ("queue", "exchange", "routing_key"),
    "kafka": ("topic", "key"),
}
_HEADERS, _PAYLOAD = "callback.data.headers", "callback.data.payload"

Fields = Mapping[str, str]

BLANK: Fields = {"when": "cron", "timezone": "UTC", "callback.type": "http", "callback.data.method": "POST",
                 "misfire": "fire"}  # fmt: skip


def read_definition(form: Fields) -> dict[str, Any]:
    """What was typed, as the API takes it. What is left empty is left out. Raises `ApiProblem` for what would not
    become the body of a request."""
    body = _read_when(form)
    body |= {name: form[name].strip() for name in _TIMES if form.get(name, "").strip()}
    body |= _read_numbers(form, _NUMBERS)
    body["misfire"] = _read_misfire(form)
    body["retry"] = _read_numbers(form, _RETRY, "retry.")
    body["labels"] = read_pairs(form, "labels", "=")
    body["callback"] = _read_callback(form)
    return body


def fill_form(schedule: Mapping[str, Any]) -> dict[str, str]:
    """The fields that say what the schedule says."""
    form = {"when": next((kind for kind in ("cron", "every") if kind in schedule), "schedules")}
    form["schedules"] = "\n".join(schedule.get("schedules", ()))
    for name in ("cron", "timezone", "every", *_TIMES, "max_occurrences"):
        form[name] = str(schedule.get(name, ""))
    form["window_seconds"] = f"{schedule['window_seconds']:g}" if schedule["window_seconds"] else ""
    misfire = schedule["misfire"]
    form["misfire"] = misfire if isinstance(misfire, str) else "within"
    form["misfire.fire_within_seconds"] = "" if isinstance(misfire, str) else f"{misfire['fire_within_seconds']:g}"
    form |= {f"retry.{name}": f"{schedule['retry'][name]:g}" for name in _RETRY}
    form["labels"] = "\n".join(f"{name}={value}" for name, value in schedule["labels"].items())
    return form | _fill_callback(schedule["callback"])


def _fill_callback(callback: Mapping[str, Any]) -> dict[str, str]:
    kind, data = callback["type"], callback["data"]
    form = {"callback.type": kind} | {f"callback.data.{name}": str(data.get(name) or "") for name in _DATA[kind]}
    form[_HEADERS] = "\n".join(f"{name}: {value}" for name, value in (data.get("headers") or {}).items())
    form[_PAYLOAD] = _write_json(data["payload"]) if "payload" in data else ""
    return form


def _read_when(form: Fields) -> dict[str, Any]:
    match form.get("when"):
        case "every":
            return _read_numbers(form, ("every",))
        case "cron":
            zone = form.get("timezone", "").strip()
            return {"cron": form.get("cron", "").strip()} | ({"timezone": zone} if zone else {})
        case _:
            return {"schedules": form.get("schedules", "").split()}


def _read_misfire(form: Fields) -> str | dict[str, Any]:
    rule = form.get("misfire", "")
    return _read_numbers(form, ("fire_within_seconds",), "misfire.") if rule == "within" else rule


def _read_callback(form: Fields) -> dict[str, Any]:
    kind = form.get("callback.type", "")
    named = {name: form.get(f"callback.data.{name}", "").strip() for name in _DATA.get(kind, ())}
    data: dict[str, Any] = {name: value for name, value in named.items() if value}
    headers = read_pairs(form, _HEADERS)
    if headers:
        data["headers"] = headers
    payload = read_json(form, _PAYLOAD)
    if payload is not None:
        data["payload"] = payload
    return {"type": kind, "data": data}


def _write_json(payload: Any) -> str:
    """The payload as it is read again: a text in quotes, so that it is no number or list afterwards."""
    return msgspec.json.format(msgspec.json.encode(payload), indent=2).decode()


def _read_numbers(form: Fields, names: Sequence[str], where: str = "") -> dict[str, Any]:
    """Those of these numbers that were typed. Raises `ApiProblem`."""
    numbers = {name: read_number(form, where + name) for name in names}
    return {name: number for name, number in numbers.items() if number is not None}
