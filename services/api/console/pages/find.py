"""`/ui/find`: one box takes an address or an id, and tells what was sent there, what waits there, and why not.

Each app is asked by itself, by reads that an index serves. So no more apps are asked at once than `APPS_AT_ONCE`.
"""

import re
from http import HTTPStatus
from typing import Any

from services.api.http.pages.apps import ShownApp, read_apps
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import SHOWN, Visit, address
from services.api.messages.messages import RUNNING_HEADER
from services.api.messages.pages.ledger import REASONS
from services.api.messages.pages.recipients import CAUSES, CHANNELS
from shared.domain.clock.schedules import KEY
from shared.domain.messages.recipients import ADDRESS_CHARACTERS, explain_search

APPS_AT_ONCE = 10
NAMESPACES_AT_ONCE = 20
_NAMES_READ = 200
_ID = re.compile(r"[0-9a-f-]{16,36}(\.\d+\.\d+)?")
_THINGS = (
    ("The job", "/apps/{}/jobs/{}", "/jobs/{}/{}"),
    ("The localized push", "/apps/{}/groups/{}", "/groups/{}/{}"),
    ("The message", "/apps/{}/messages/{}", "/messages/{}/messages/{}"),
)


class FindPages(PageSet):
    section = NavSection("Find", "/find", order=1)

    @PageRoute("/find", template="console/find.html")
    async def find(self, visit: Visit) -> Values:
        wanted, chosen = visit.query("q").strip(), visit.query("app")
        apps = await read_apps(visit)
        among = [app for app in apps if chosen in {"", app["id"]}]
        values: Values = {
            "title": "Find a recipient",
            "wanted": wanted,
            "apps": apps,
            "asked": len(among[:APPS_AT_ONCE]),
            "among": len(among),
            "may_look": any(visit.may("operator", app=app["id"]) for app in among),
            "found": [],
            "unread": [],
            "schedules": [],
            "wrong": "" if len(wanted) <= ADDRESS_CHARACTERS else f"Type at most {ADDRESS_CHARACTERS:,} characters.",
            "most": ADDRESS_CHARACTERS,
            "most_apps": APPS_AT_ONCE,
            "most_namespaces": NAMESPACES_AT_ONCE,
        }
        if not wanted or values["wrong"]:
            return values
        *found, schedules = await visit.read_all(
            *(_look_in(visit, app, wanted) for app in among[:APPS_AT_ONCE]), _find_schedules(visit, wanted)
        )
        known = [
            each for each in found if any(each[part] for part in ("things", "messages", "bars", "devices", "hint"))
        ]
        words = {"channels": CHANNELS, "causes": CAUSES, "meanings": REASONS}
        unread = [each["unread"] for each in found if each["unread"]]
        return values | words | {"found": known, "unread": unread, "schedules": schedules}


async def _look_in(visit: Visit, app: ShownApp, wanted: str) -> Values:
    of_app = f"of {app['name']}"
    found: Values = {"app": app, "things": [], "messages": [], "next": "", "accounts": {}, "bars": []}
    found |= {"devices": [], "unread": "", "hint": ""}
    if _ID.fullmatch(id_ := wanted.lower()):
        read = [visit.try_read(f"{what} {of_app}", path, app["id"], id_) for what, path, _ in _THINGS]
        there = zip(_THINGS, await visit.read_all(*read), strict=True)
        found["things"] = [(what, address(page, app["id"], id_)) for (what, _, page), thing in there if thing]
    if not visit.may("operator", app=app["id"]):
        return found
    listed = visit.read_list("/apps/{}/messages", app["id"], recipient=wanted, limit=SHOWN, cursor="")
    messages, bars, (devices, unread) = await visit.read_all(
        visit.attempt(f"Messages {of_app}", listed),
        visit.try_read(f"Suppressions {of_app}", "/apps/{}/suppressions", app["id"], address=wanted, limit=SHOWN),
        _read_devices(visit, app, wanted),
    )
    if messages is not None and messages.value:
        accounts = await visit.try_read(f"Accounts {of_app}", "/apps/{}/credentials", app["id"], limit=_NAMES_READ)
        found |= {"messages": messages.value, "next": messages.next}
        found["accounts"] = {account["id"]: account["name"] for account in accounts or ()}
    if messages is not None and (running := int(messages.headers.get(RUNNING_HEADER, 0))):
        found["hint"] = explain_search(bool(messages.value or bars or devices or found["things"]), running)
    return found | {"bars": bars or [], "devices": devices, "unread": unread}


async def _read_devices(visit: Visit, app: ShownApp, user: str) -> tuple[Any, str]:
    try:
        return await visit.read("/apps/{}/devices", app["id"], user=user), ""
    except ApiProblem as problem:
        return [], "" if problem.status == HTTPStatus.NOT_FOUND else f"Devices of {app['name']}: {problem.detail}"


async def _find_schedules(visit: Visit, key: str) -> list[Any]:
    """The schedules with exactly this key in the first namespaces that the reader may see, and in the reader's own."""
    if not KEY.fullmatch(key):
        return []
    listed = await visit.try_read("Namespaces", "/namespaces", limit=NAMESPACES_AT_ONCE, counts=False)
    names = dict.fromkeys([visit.caller.namespace, *(each["namespace"] for each in listed or ())])
    found = await visit.read_all(
        *(visit.try_read("A schedule", "/schedules/{}", key, namespace=name) for name in names)
    )
    return [(name, schedule) for name, schedule in zip(names, found, strict=True) if schedule]
