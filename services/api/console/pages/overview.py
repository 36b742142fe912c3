"""`/ui`: the overview; `/ui/deployment`: processes, queues and settings; and `/ui/find`, which finds a thing by
its id.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from itertools import groupby
from math import isinf
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from services.api.http.pages.html import known_time
from services.api.http.pages.namespaces import ShownApp, read_apps
from services.api.http.pages.pictures import Piece
from services.api.http.pages.routes import NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import SHOWN, ApiProblem, Visit, address
from services.api.messages.messages import RUNNING_HEADER
from services.api.messages.pages.ledger import CAUSES, CHANNELS, REASONS
from shared.clock.rules.schedules import KEY
from shared.messages.rules.recipients import ADDRESS_CHARACTERS, explain_search
from shared.runtime.server_settings import BrokerSettings

HOUR = 60
_LATE_TONES = ((1.0, "good"), (5.0, "wait"))
_FAILED = "failed"
_FAILED_SECONDS = 10
_SHOWN = 5
"""How many dead letters and failed jobs the page lists."""
Minutes = Sequence[Mapping[str, Any]]


class OverviewPages(PageSet):
    section = NavSection("Overview", "", order=0)

    def __init__(self, glance: Callable[[], Awaitable[Mapping[str, int]]] | None = None) -> None:
        self.glance = glance

    @PageRoute("/", template="console/overview.html", refresh_seconds=2, shared_by_roles=True)
    async def show_overview(self, visit: Visit) -> Values:
        seen = await visit.read("/overview")
        day_ago = f"{known_time(seen['asOf']) - timedelta(days=1):%Y-%m-%dT%H:%M}"
        failed_jobs = await visit.attempt("Failed jobs", _read_failed(visit, day_ago))
        letters = None
        if seen["deadLetters"]:
            letters = await visit.try_read("The newest dead letters", "/dead-letters", namespace="*", limit=_SHOWN)
        minutes = spread(seen["minutes"], known_time(seen["asOf"]))
        is_quiet = not (seen["partial"] or seen["minutes"] or any(seen["jobs"]["open"].values()) or seen["deadLetters"])
        apps = await visit.try_read("Apps", "/apps", limit=1) if is_quiet else None
        return {
            "title": "Overview",
            "seen": seen,
            "is_new": apps == [],
            "paused": seen["jobs"]["open"].get("paused"),
            "minutes": minutes,
            "recipients": [total(minute["recipients"]) for minute in minutes],
            "messages": [minute["messages"].get("accepted", 0) for minute in minutes],
            "deliveries": [minute["deliveries"].get("success", 0) for minute in minutes],
            "fired": [count_delivered(minute["fired"]) for minute in minutes],
            "lateness": lateness(minutes),
            "failed": sum(minute["recipients"].get(_FAILED, 0) for minute in minutes),
            "died": sum(minute.get("deadLetters", 0) for minute in minutes),
            "processes": count_roles(seen["processes"]),
            "letters": letters or [],
            "failed_jobs": failed_jobs or [],
            "day_ago": day_ago,
        }


async def _read_failed(visit: Visit, since: str) -> Any:
    """The newest failed jobs since `since`, shared by readers with the same roles."""

    async def read() -> Any:
        return await visit.read("/jobs", status=_FAILED, since=f"{since}:00Z", limit=_SHOWN)

    return await visit.read_shared(("failed jobs", visit.caller.rights), read, seconds=_FAILED_SECONDS)


def spread(minutes: Minutes, now: datetime) -> list[Mapping[str, Any]]:
    """The last hour, minute by minute. Minutes in which nothing happened are left out of the answer; here they are
    empty."""
    known = {minute["at"][:16]: minute for minute in minutes}
    starts = [now - timedelta(minutes=ago) for ago in range(HOUR - 1, -1, -1)]
    empty = {
        "recipients": {},
        "messages": {},
        "deliveries": {},
        "fired": {},
        "lateness": {},
        "retries": 0,
        "serverErrors": 0,
    }
    return [known.get(f"{start:%Y-%m-%dT%H:%M}", empty) for start in starts]


def total(counts: Mapping[str, int]) -> int:
    return sum(counts.values())


def count_delivered(fired: Mapping[str, int]) -> int:
    """How many instants reached their target; the others are attempts that failed."""
    return sum(count for kind, count in fired.items() if kind.endswith("/fired"))


def lateness(minutes: Minutes) -> list[Piece]:
    """How late occurrences fired, by the ends of the buckets, the earliest first."""
    counts: dict[float, int] = {}
    for minute in minutes:
        for end, count in minute["lateness"].items():
            counts[float(end)] = counts.get(float(end), 0) + count
    return [Piece(_words(end), counts[end], _tone(end / 1e6)) for end in sorted(counts)]


def count_roles(processes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    roles: dict[str, dict[str, int]] = {}
    for process in processes:
        for role in process["roles"]:
            states = roles.setdefault(role, {})
            states[process["state"]] = states.get(process["state"], 0) + 1
    return dict(sorted(roles.items()))


def _words(microseconds: float) -> str:
    if isinf(microseconds):
        return "more"
    seconds = microseconds / 1e6
    return f"up to {seconds * 1_000:g} ms" if seconds < 1 else f"up to {seconds:g} s"


def _tone(seconds: float) -> str:
    return next((tone for limit, tone in _LATE_TONES if seconds <= limit), "bad")


_ORDER = {"gone": 0, "silent": 1, "alive": 2}


class ProcessPages(PageSet):
    section = NavSection(
        "Processes",
        "/processes",
        order=310,
        group="Admin",
        needs=("silent-processes",),
        is_seen=lambda visit: visit.may("viewer"),
    )

    def __init__(self, broker: BrokerSettings) -> None:
        vhost = unquote(urlsplit(broker.url).path[1:]) or "/"
        at = broker.management_public_url.rstrip("/")
        self._queue_page = f"{at}/#/queues/{quote(vhost, safe='')}/" if at else ""

    @PageRoute("/processes", template="console/processes.html", refresh_seconds=2, shared_by_roles=True)
    async def show_processes(self, visit: Visit) -> Values:
        processes, queues = await visit.read_all(visit.read("/processes"), visit.try_read("Queues", "/queues"))
        return {
            "title": "Processes",
            "processes": sorted(processes, key=_rank),
            "queues": queues,
            "queue_page": self._queue_page,
            "differing": len({process["settingsDigest"] for process in processes if process["state"] == "alive"}) > 1,
        }


class AuditPages(PageSet):
    section = NavSection("Audit", "/audit", order=330, group="Admin", is_seen=lambda visit: visit.caller.is_admin)

    @PageRoute("/audit", template="console/audit.html")
    async def show_audit(self, visit: Visit) -> Values:
        wanted = {name: visit.query(name) for name in ("act", "on", "by")}
        app = visit.query("app")
        found = await (visit.read_list("/apps/{}/audit", app, **wanted) if app else visit.read_list("/audit", **wanted))
        return {"title": "Audit", "acts": found.value, "next": found.next, "wanted": wanted | {"app": app}}


class SettingsPages(PageSet):
    section = NavSection("Settings", "/settings", order=340, group="Admin", is_seen=lambda visit: visit.caller.is_admin)

    @PageRoute("/settings", template="console/settings.html")
    async def show_settings(self, visit: Visit) -> Values:
        settings = await visit.read("/settings")
        word, changed_only = visit.query("q").lower(), bool(visit.query("changed"))
        shown = [
            setting
            for setting in settings
            if word in f"{setting['name']} {setting['sentence']}".lower()
            if not changed_only or setting["value"] != setting["default"]
        ]
        return {
            "title": "Settings",
            "groups": [(name, list(some)) for name, some in groupby(shown, lambda one: one["name"].partition(".")[0])],
            "changed": sum(setting["value"] != setting["default"] for setting in settings),
            "word": visit.query("q"),
            "changed_only": changed_only,
        }


def _rank(process: Mapping[str, Any]) -> tuple[int, Sequence[str], str]:
    return _ORDER.get(process["state"], 0), process["roles"], process["id"]


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
