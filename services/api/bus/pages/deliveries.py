"""`/ui/bus/…/deliveries`: what was sent to a receiver, what came of it, and the events in it."""

from http import HTTPStatus

from services.api.bus.pages.bus import SECTION
from services.api.bus.pages.history import is_success
from services.api.bus.pages.whose import read_namespace, tell_whose
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import PageRoute, PageSet, Values
from services.api.http.pages.visits import SHOWN, Visit

_STATUSES = ("open", "delivered", "dead", "discarded")
_REFRESH_SECONDS = 2


class BusDeliveryPages(PageSet):
    """The pages of deliveries."""

    @PageRoute(
        "/bus/subscriptions/{key:str}/deliveries", template="bus/deliveries.html", refresh_seconds=2,
        section=SECTION.path,
    )  # fmt: skip
    async def show_deliveries(self, visit: Visit) -> Values:
        """Those of a subscription, the newest first."""
        key, status = visit.path("key"), visit.query("status")
        about = {"namespace": read_namespace(visit), "status": status}
        found = await visit.read_list("/bus/subscriptions/{}/deliveries", key, **about)
        return tell_whose(visit) | {
            "title": f"Deliveries of {key}",
            "key": key,
            "status": status,
            "statuses": _STATUSES,
            "found": found.value,
            "next": found.next,
            "is_success": is_success,
        }

    @PageRoute("/bus/deliveries/{delivery_id:str}", template="bus/delivery.html", section=SECTION.path)
    async def show_delivery(self, visit: Visit) -> Values:
        """One of them. It asks for itself while it is open; then its events need not be read from the log."""
        delivery = await visit.read("/bus/deliveries/{}", visit.path("delivery_id"), namespace=read_namespace(visit))
        events, gone = ([], "") if delivery["redacted"] else await self._read_events(visit)
        return tell_whose(visit) | {
            "title": f"Delivery {delivery['sequence']}",
            "delivery": delivery,
            "events": events[:SHOWN],
            "more": len(events) - SHOWN,
            "gone": gone,
            "is_success": is_success,
            "refresh_seconds": 0 if delivery["settled_at"] else _REFRESH_SECONDS,
        }

    async def _read_events(self, visit: Visit) -> tuple[list[object], str]:
        """The events, or why they cannot be told."""
        try:
            whole = await visit.read(
                "/bus/deliveries/{}", visit.path("delivery_id"), namespace=read_namespace(visit), events=True
            )
        except ApiProblem as problem:
            if problem.status != HTTPStatus.GONE:
                visit.unknown.append(("Its events", problem.detail))
            return [], problem.detail
        return whole["events"], ""
