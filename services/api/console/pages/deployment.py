"""The pages of processes, the audit and settings."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from services.api.http.pages.routes import NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit
from shared.runtime.server_settings import BrokerSettings

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
        """Acts, the newest first; of one app for who owns it."""
        wanted = {name: visit.query(name) for name in ("act", "on", "by")}
        app = visit.query("app")
        found = await (visit.read_list("/apps/{}/audit", app, **wanted) if app else visit.read_list("/audit", **wanted))
        return {"title": "Audit", "acts": found.value, "next": found.next, "wanted": wanted | {"app": app}}


class SettingsPages(PageSet):
    section = NavSection("Settings", "/settings", order=340, group="Admin", is_seen=lambda visit: visit.caller.is_admin)

    @PageRoute("/settings", template="console/settings.html")
    async def show_settings(self, visit: Visit) -> Values:
        """All settings, or those that are not as by default, or that a word is in."""
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
            "groups": [(section, list(some)) for section, some in groupby(shown, _section_of)],
            "changed": sum(setting["value"] != setting["default"] for setting in settings),
            "word": visit.query("q"),
            "changed_only": changed_only,
        }


def _rank(process: Mapping[str, Any]) -> tuple[int, Sequence[str], str]:
    return _ORDER.get(process["state"], 0), process["roles"], process["id"]


def _section_of(setting: Mapping[str, Any]) -> str:
    return str(setting["name"]).partition(".")[0]
