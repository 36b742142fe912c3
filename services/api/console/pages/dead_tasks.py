"""`/ui/dead-letters/tasks`: tasks that no worker could read, or that failed by a fault of ours. They are for admins."""

from typing import Any

from services.api.http.pages.filters import pretty, query_of
from services.api.http.pages.routes import FormRoute, Moved, NavTab, PageRoute, PageSet, Values
from services.api.http.pages.typed import MANY_THINGS, check_name
from services.api.http.pages.visits import Visit

TASKS = "/dead-letters/tasks"
_SHOWN = 20
_RETURNED = 500


class DeadTaskPages(PageSet):
    """The dead tasks of each queue, and the first ones of one queue."""

    tab = NavTab("Tasks", TASKS, under="/dead-letters", order=20, is_seen=lambda visit: visit.caller.is_admin)

    @PageRoute(TASKS, template="console/dead-tasks.html", refresh_seconds=5, shared_by_roles=True)
    async def show_tasks(self, visit: Visit) -> Values:
        """Which queues have some; of the one in the address, the first."""
        queue = visit.query("queue")
        queues = await visit.read("/queues")
        shown: Any = await visit.read("/queues/{}/dead", queue, limit=_SHOWN) if queue else None
        return {
            "title": "Dead tasks",
            "queues": [each for each in queues if each["dead"]],
            "shown": shown,
            "messages": [message | {"text": pretty(message["text"])} for message in shown["messages"]] if shown else [],
            "returned": min(_RETURNED, shown["dead"]) if shown else 0,
            "name": _name_to_type(shown) if shown else "",
        }

    @FormRoute(TASKS + "/return", page="show_tasks")
    async def return_tasks(self, visit: Visit) -> Moved:
        """Put the first ones back into their queue."""
        queue = visit.query("queue")
        told = await visit.send("POST", "/queues/{}/dead/return", queue)
        return Moved(TASKS + query_of(queue=queue), "returned", told["returned"])

    @FormRoute(TASKS + "/purge", page="show_tasks")
    async def purge_tasks(self, visit: Visit) -> Moved:
        queue = visit.query("queue")
        check_name(visit.form, _name_to_type(await visit.read("/queues/{}/dead", queue, limit=1)))
        told = await visit.send("POST", "/queues/{}/dead/purge", queue)
        return Moved(TASKS, "purged", told["purged"])


def _name_to_type(shown: Values) -> str:
    """The word that confirms discarding all, `""` for a few."""
    return str(shown["queue"]) if shown["dead"] > MANY_THINGS else ""
