"""`/ui/bus`: how the subscriptions of a namespace stand."""

from services.api.bus.pages.standing import read_standings
from services.api.bus.pages.whose import read_namespace, tell_whose
from services.api.http.pages.namespaces import read_choice
from services.api.http.pages.routes import NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit

SECTION = NavSection("Bus", "/bus", order=120)
AT_ONCE = 20
"""How many subscriptions a page shows: the health of each is read by itself."""


class BusPages(PageSet):
    """The first page of the bus."""

    section = SECTION

    @PageRoute("/bus", template="bus/bus.html", refresh_seconds=2)
    async def show_bus(self, visit: Visit) -> Values:
        """Subscriptions, the worst of the page first, and what waits on the whole bus."""
        found = await visit.read_list("/bus/subscriptions", namespace=read_namespace(visit), limit=AT_ONCE)
        pressure = await visit.try_read("The load of the whole bus", "/bus/pressure")
        standings = await read_standings(visit, found.value, read_namespace(visit))
        return tell_whose(visit) | {
            "title": "Bus",
            "standings": standings,
            "troubled": [each for each in standings if each.is_trouble],
            "pressure": pressure,
            "next": found.next,
            "choice": await read_choice(visit, read_namespace(visit) or visit.caller.namespace),
        }
