"""`/ui/bus/subscriptions/{key}/replays`: events of the log, brought to a subscription once more."""

from datetime import UTC, datetime, timedelta

from services.api.bus.pages.bus import SECTION
from services.api.bus.pages.whose import below, read_namespace, tell_whose
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.typed import read_instant
from services.api.http.pages.visits import Visit
from shared.domain.instants import format_maybe

_PAGE = "/bus/subscriptions/{key:str}/replays"
_SUBSCRIPTION = "/bus/subscriptions/{}"
_REPLAYS = _SUBSCRIPTION + "/replays"
_USUAL = timedelta(hours=1)


class BusReplayPages(PageSet):
    """The page of a subscription's replays."""

    @PageRoute(_PAGE, template="bus/replays.html", refresh_seconds=2, section=SECTION.path)
    async def show_replays(self, visit: Visit) -> Values:
        """Replays and how far they are, and a form that begins one."""
        key = visit.path("key")
        subscription = await visit.read(_SUBSCRIPTION, key, namespace=read_namespace(visit))
        found = await visit.read_list(_REPLAYS, key, namespace=read_namespace(visit))
        usual = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - _USUAL
        return tell_whose(visit) | {
            "title": f"Replays of {key}",
            "key": key,
            "subscription": subscription,
            "found": found.value,
            "next": found.next,
            "open": [each for each in found.value if each["ended_at"] is None],
            "usual": f"{usual:%Y-%m-%dT%H:%M}",
        }

    @FormRoute(_PAGE, page="show_replays")
    async def start_replay(self, visit: Visit) -> Moved:
        """Begin one."""
        key = visit.path("key")
        begin, end = read_instant(visit.form, "from"), read_instant(visit.form, "to")
        given = {"from": format_maybe(begin), "to": format_maybe(end), "topics": visit.read_field("topics").split()}
        body = {name: value for name, value in given.items() if value is not None}
        await visit.send("POST", _REPLAYS, key, body=body, query={"namespace": read_namespace(visit)})
        return Moved(below(visit, _REPLAYS, key), "begun")

    @FormRoute(_PAGE + "/cancel", page="show_replays")
    async def cancel_replays(self, visit: Visit) -> Moved:
        """Cancel those that are not over."""
        key = visit.path("key")
        await visit.send("DELETE", _REPLAYS, key, query={"namespace": read_namespace(visit)})
        return Moved(below(visit, _REPLAYS, key), "cancelled")
