"""`/ui/processes`: what runs, and what waits for it."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from services.api.http.pages.routes import NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit
from shared.runtime.server_settings import BrokerSettings

_ORDER = {"gone": 0, "silent": 1, "alive": 2}


class ProcessPages(PageSet):
    """Processes, and queues of tasks."""

    section = NavSection("Processes", "/processes", order=220, is_seen=lambda visit: visit.may("viewer"))

    def __init__(self, broker: BrokerSettings) -> None:
        vhost = unquote(urlsplit(broker.url).path[1:]) or "/"
        at = broker.management_public_url.rstrip("/")
        self._queue_page = f"{at}/#/queues/{quote(vhost, safe='')}/" if at else ""

    @PageRoute("/processes", template="console/processes.html", refresh_seconds=2, shared_by_roles=True)
    async def show_processes(self, visit: Visit) -> Values:
        """All processes, those in trouble first, and all queues."""
        processes, queues = await visit.read_all(visit.read("/processes"), visit.try_read("Queues", "/queues"))
        return {
            "title": "Processes",
            "processes": sorted(processes, key=_rank),
            "queues": queues,
            "queue_page": self._queue_page,
            "differing": len({process["settingsDigest"] for process in processes if process["state"] == "alive"}) > 1,
        }


def _rank(process: Mapping[str, Any]) -> tuple[int, Sequence[str], str]:
    return _ORDER.get(process["state"], 0), process["roles"], process["id"]
