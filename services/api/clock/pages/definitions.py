"""`/ui/new-schedule` and `/ui/schedules/…/edit`: a schedule is made or changed, after a look at its next instants.

The fields of the form are named as the API names them in its refusals.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from services.api.clock.pages.schedules import SECTION, in_zone, link_schedule
from services.api.http.pages.html import pretty
from services.api.http.pages.routes import (
    FormRoute,
    Moved,
    PageRoute,
    PageSet,
    Values,
    read_json,
    read_number,
    read_pairs,
)
from services.api.http.pages.visits import Visit, address

_NEW, _EDIT = "/new-schedule", "/schedules/{key:str}/edit"  # a schedule may have the key `new`
_TIMES = ("starts_at", "ends_at")
_NUMBERS = ("max_occurrences", "window_seconds")
_WHOLE = frozenset({"every", "max_occurrences", "attempts"})
_RETRY = ("attempts", "first_delay_seconds", "factor", "cap_seconds")
_DATA = {
    "http": ("url", "method", "secret"),
    "rabbitmq": ("queue", "exchange", "routing_key"),
    "kafka": ("topic", "key"),
}
_HEADERS, _PAYLOAD = "callback.data.headers", "callback.data.payload"

Fields = Mapping[str, str]

_BLANK: Fields = {"when": "cron", "timezone": "UTC", "callback.type": "http", "callback.data.method": "POST",
                 "misfire": "fire"}  # fmt: skip


class DefinitionPages(PageSet):
    section = SECTION

    @PageRoute(_NEW, template="clock/definition.html")
    async def show_new(self, visit: Visit) -> Values:
        return {"title": "New schedule", "form": visit.form or _BLANK, "path": _NEW, "is_new": True, "preview": None}

    @FormRoute(_NEW, page="show_new")
    async def create_schedule(self, visit: Visit) -> Moved:
        made = await visit.send("POST", "/schedules", body=_read_new(visit))
        return Moved(link_schedule(visit.caller.namespace, made["key"]), "made")

    @FormRoute(_NEW + "/preview", page="show_new")
    async def preview_new(self, visit: Visit) -> Values:
        return await self.show_new(visit) | {"preview": await _preview(visit, _read_new(visit))}

    @PageRoute(_EDIT, template="clock/definition.html")
    async def show_edit(self, visit: Visit) -> Values:
        """The form with what a schedule says. Only its owner changes it: the API knows no other way."""
        key = visit.path("key")
        schedule = await visit.read("/schedules/{}", key)
        form, path = visit.form or _fill_form(schedule), address("/schedules/{}", key) + "/edit"
        return {"title": key, "form": form, "path": path, "is_new": False, "preview": None}

    @FormRoute(_EDIT, page="show_edit")
    async def save_schedule(self, visit: Visit) -> Moved:
        key = visit.path("key")
        await visit.send("PUT", "/schedules/{}", key, body=await _read_changed(visit))
        return Moved(link_schedule(visit.caller.namespace, key), "saved")

    @FormRoute(_EDIT + "/preview", page="show_edit")
    async def preview_edit(self, visit: Visit) -> Values:
        body = await _read_changed(visit) | {"key": visit.path("key")}
        return await self.show_edit(visit) | {"preview": await _preview(visit, body)}


def _read_new(visit: Visit) -> dict[str, Any]:
    # A form's field `key` is that of its idempotency.
    key = visit.read_field("schedule_key")
    return ({"key": key} if key else {}) | _read_definition(visit.form)


async def _read_changed(visit: Visit) -> dict[str, Any]:
    """The body with the stored bytes of a payload that was not edited, because a receiver may compare them."""
    body = _read_definition(visit.form)
    data = (await visit.read("/schedules/{}", visit.path("key")))["callback"]["data"]
    if "payload" in data and visit.read_field(_PAYLOAD) == pretty(data["payload"]):
        body["callback"]["data"]["payload"] = data["payload"]
    return body


async def _preview(visit: Visit, body: dict[str, Any]) -> list[tuple[str, str]]:
    told = await visit.send("POST", "/schedules/preview", body=body)
    return in_zone(told["next"], body.get("timezone", ""))


def _read_definition(form: Fields) -> dict[str, Any]:
    """The body of the API's request, without empty fields. Raises `ApiProblem` for invalid fields."""
    body = _read_when(form)
    body |= {name: form[name].strip() for name in _TIMES if form.get(name, "").strip()}
    body |= _read_numbers(form, _NUMBERS)
    body["misfire"] = _read_misfire(form)
    body["retry"] = _read_numbers(form, _RETRY, "retry.")
    body["labels"] = read_pairs(form, "labels")
    body["callback"] = _read_callback(form)
    return body


def _fill_form(schedule: Mapping[str, Any]) -> dict[str, str]:
    form = {"when": next((kind for kind in ("cron", "every") if kind in schedule), "schedules")}
    form["schedules"] = "\n".join(schedule.get("schedules", ()))
    for name in ("cron", "timezone", "every", *_TIMES, "max_occurrences"):
        form[name] = str(schedule.get(name, ""))
    form["window_seconds"] = _write_number(schedule["window_seconds"]) if schedule["window_seconds"] else ""
    misfire = schedule["misfire"]
    form["misfire"] = misfire if isinstance(misfire, str) else "within"
    within = "" if isinstance(misfire, str) else _write_number(misfire["fire_within_seconds"])
    form["misfire.fire_within_seconds"] = within
    form |= {f"retry.{name}": _write_number(schedule["retry"][name]) for name in _RETRY}
    form["labels"] = "\n".join(f"{name}:{value}" for name, value in schedule["labels"].items())
    return form | _fill_callback(schedule["callback"])


def _fill_callback(callback: Mapping[str, Any]) -> dict[str, str]:
    kind, data = callback["type"], callback["data"]
    form = {"callback.type": kind} | {f"callback.data.{name}": str(data.get(name) or "") for name in _DATA[kind]}
    form[_HEADERS] = "\n".join(f"{name}: {value}" for name, value in (data.get("headers") or {}).items())
    form[_PAYLOAD] = pretty(data["payload"]) if "payload" in data else ""
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


def _write_number(number: float) -> str:
    """All digits of the number, because the form saves the shown value again."""
    return str(number).removesuffix(".0")


def _read_numbers(form: Fields, names: Sequence[str], where: str = "") -> dict[str, Any]:
    numbers = {name: read_number(form, where + name, whole=name in _WHOLE) for name in names}
    return {name: number for name, number in numbers.items() if number is not None}
