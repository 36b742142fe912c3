"""`/ui/schedules`: what fires next, a search, and one schedule: what it says, when it fires, how that ended."""

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

from services.api.clock.pages import words
from services.api.http.pages.filters import known_time, query_of
from services.api.http.pages.inner import ApiAnswer, ApiProblem
from services.api.http.pages.namespaces import EVERY, chosen_namespace, read_choice, read_names, tell_namespace
from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit, address

_SCHEDULES = "/schedules"
SECTION = NavSection("Schedules", _SCHEDULES, order=100)
_ONE = "/schedules/{key:str}"
_SAID = {"fire": "fired", "pause": "paused", "resume": "resumed"}
_DAY = timedelta(days=1, seconds=-1)  # the API ends earlier if more than 50 instants are due
_KEPT_SECONDS = 4.5  # less than a refresh is from the next


class SchedulePages(PageSet):
    """All schedules of a namespace, and one of them."""

    section = SECTION

    @PageRoute(_SCHEDULES, template="clock/schedules.html", refresh_seconds=5)
    async def show_schedules(self, visit: Visit) -> Values:
        """The next instants, and a search. It never lists more than one page of a namespace."""
        chosen = chosen_namespace(visit)
        is_one = chosen != EVERY
        cursor = "" if is_one else visit.query("cursor")
        choosing = read_choice(visit, chosen, cursor=cursor, counts=not is_one)
        due, choice = await visit.read_all(_read_due(visit, chosen), choosing)
        found, wrong = await _search(visit, chosen) if is_one else (ApiAnswer(0, []), None)
        return {
            "title": "Schedules",
            "choice": choice,
            "due": due["instants"],
            "is_whole": known_time(due["until"]) - known_time(due["as_of"]) >= _DAY,
            "found": found.value,
            "tell_when": words.tell_when,
            "tell_callback": words.tell_callback,
            "next": found.next if is_one else choice.next,
            "wrong": wrong,
            "may_make": chosen in {EVERY, visit.caller.namespace},
        }

    @PageRoute(_ONE, template="clock/schedule.html", refresh_seconds=5)
    async def show_schedule(self, visit: Visit) -> Values:
        return await describe_schedule(visit, visit.path("key"))

    @FormRoute(_ONE + "/fire", page="show_schedule")
    @FormRoute(_ONE + "/pause", page="show_schedule")
    @FormRoute(_ONE + "/resume", page="show_schedule")
    async def move_schedule(self, visit: Visit) -> Moved:
        query = {"namespace": visit.query("namespace")}
        await visit.send("POST", f"/schedules/{{}}/{visit.act}", visit.path("key"), query=query)
        return Moved(_address_of(visit), _SAID[visit.act])

    @FormRoute(_ONE + "/cancel", page="show_schedule")
    async def cancel_instant(self, visit: Visit) -> Moved:
        key, query = visit.path("key"), {"namespace": visit.query("namespace")}
        await visit.send("DELETE", "/schedules/{}/occurrences/{}", key, visit.query("instant"), query=query)
        return Moved(_address_of(visit), "cancelled")

    @FormRoute(_ONE + "/delete", page="show_schedule")
    async def delete_schedule(self, visit: Visit) -> Moved:
        namespace = visit.query("namespace")
        await visit.send("DELETE", "/schedules/{}", visit.path("key"), query={"namespace": namespace})
        return Moved(_SCHEDULES + query_of(namespace=namespace), "deleted")


async def describe_schedule(visit: Visit, key: str) -> Values:
    """The values of a schedule's page. Raises `ApiProblem`."""
    namespace = visit.query("namespace") or visit.caller.namespace
    schedule, names = await visit.read_all(visit.read("/schedules/{}", key, namespace=namespace), read_names(visit))
    letters = await visit.try_read("Its dead letters", "/dead-letters", key=key, namespace=namespace, limit=1)
    return {
        "title": key,
        "schedule": schedule,
        "namespace": namespace,
        "whose": tell_namespace(namespace, names),
        "letters": letters or [],
        "when": words.tell_when(schedule),
        "does": words.tell_callback(schedule["callback"]),
        "misfire": words.tell_misfire(schedule["misfire"]),
        "retry": words.tell_retry(schedule["retry"]),
        "instants": words.in_zone(schedule["next"], schedule.get("timezone", "")),
        "is_own": namespace == visit.caller.namespace,
        "firing": _name_firing(schedule),
    }


def link_schedule(namespace: str, key: str) -> str:
    """The page of a schedule."""
    return address("/schedules/{}", key) + query_of(namespace=namespace)


async def _read_due(visit: Visit, namespace: str) -> Any:
    """The next instants, shared by all readers of this namespace, because their pages ask often."""
    read = partial(visit.read, "/schedules/due", namespace=namespace)
    may_see = visit.may("viewer") if namespace == EVERY else visit.may("viewer", namespace=namespace)
    if not may_see:
        return await read()  # which refuses
    return await visit.read_shared(("/schedules/due", namespace), read, seconds=_KEPT_SECONDS)


async def _search(visit: Visit, namespace: str) -> tuple[ApiAnswer, ApiProblem | None]:
    """A page of schedules; empty, with what is wrong, where the search can match none."""
    asked = {name: visit.query(name) for name in ("prefix", "state", "label")}
    try:
        return await visit.read_list("/schedules", namespace=namespace, **asked), None
    except ApiProblem as problem:
        if problem.status != HTTPStatus.UNPROCESSABLE_ENTITY:
            raise
        return ApiAnswer(0, []), problem


def _address_of(visit: Visit) -> str:
    return link_schedule(visit.query("namespace") or visit.caller.namespace, visit.path("key"))


def _name_firing(schedule: Mapping[str, Any]) -> str:
    """An idempotency key that stays until something has happened: whoever sends the same page's form twice fires
    once."""
    happened = [schedule["updated_at"], *(outcome["at"] for outcome in schedule["outcomes"][:1])]
    return "fire-" + hashlib.sha256("/".join([schedule["key"], *happened]).encode()).hexdigest()[:32]
