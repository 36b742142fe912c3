"""`/ui/bus/subscriptions/…`: how one subscription stands, what it gets, and what can be done with it."""

from datetime import UTC, datetime

from services.api.bus.pages.bus import SECTION
from services.api.bus.pages.history import DELIVERIES, draw_history, is_success
from services.api.bus.pages.standing import stand
from services.api.bus.pages.whose import SUBSCRIPTION_PAGE, below, read_namespace, tell_whose
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.typed import MANY_THINGS, check_name, read_number
from services.api.http.pages.visits import Visit

_PAGE = "/bus/subscriptions/{key:str}"
_SUBSCRIPTION = "/bus/subscriptions/{}"
_SHOWN = 10


class BusSubscriptionPages(PageSet):
    """The page of a subscription."""

    @PageRoute(_PAGE, template="bus/subscription.html", refresh_seconds=2, section=SECTION.path)
    async def show_subscription(self, visit: Visit) -> Values:
        """Its health, a picture of its last deliveries, its definition."""
        key, about = visit.path("key"), {"namespace": read_namespace(visit)}
        subscription = await visit.read(_SUBSCRIPTION, key, **about)
        health, deliveries, replays = await visit.read_all(
            visit.try_read("Its health", _SUBSCRIPTION + "/health", key, **about),
            visit.try_read("Its deliveries", _SUBSCRIPTION + "/deliveries", key, limit=DELIVERIES, **about),
            visit.try_read("Its replays", _SUBSCRIPTION + "/replays", key, limit=1, **about),
        )
        return tell_whose(visit) | {
            "title": key,
            "standing": stand(subscription, health),
            "name": _name_to_type(key, health),
            "history": draw_history(deliveries or (), datetime.now(UTC)),
            "deliveries": (deliveries or ())[:_SHOWN],
            "replays": [each for each in replays or () if each["ended_at"] is None],
            "is_success": is_success,
        }

    @FormRoute(_PAGE + "/pause", page="show_subscription")
    async def pause_subscription(self, visit: Visit) -> Moved:
        """Have nothing delivered."""
        return await self._act(visit, "/pause", "paused")

    @FormRoute(_PAGE + "/resume", page="show_subscription")
    async def resume_subscription(self, visit: Visit) -> Moved:
        """Have what waits delivered."""
        return await self._act(visit, "/resume", "resumed")

    @FormRoute(_PAGE + "/test", page="show_subscription", template="bus/tried.html")
    async def try_receiver(self, visit: Visit) -> Values:
        """Send the receiver a made-up event, and show what it answered."""
        key = visit.path("key")
        attempt = await visit.send("POST", _SUBSCRIPTION + "/test", key, query={"namespace": read_namespace(visit)})
        told = {"title": f"Test of {key}", "key": key, "attempt": attempt, "is_taken": is_success(attempt)}
        return tell_whose(visit) | told

    @FormRoute(_PAGE + "/secrets", page="show_subscription", template="bus/secret.html")
    async def rotate_secret(self, visit: Visit) -> Values:
        """Make a new secret, and show it this once."""
        key, hours = visit.path("key"), read_number(visit.form, "keep_hours")
        body, about = {"keep_hours": hours}, {"namespace": read_namespace(visit)}
        made = await visit.send("POST", _SUBSCRIPTION + "/secrets", key, body=body, query=about)
        return show_secret(visit, made) | {"hours": hours}

    @FormRoute(_PAGE + "/delete", page="show_subscription")
    async def delete_subscription(self, visit: Visit) -> Moved:
        """Remove it, with all that waits for it."""
        key = visit.path("key")
        about = {"namespace": read_namespace(visit)}
        check_name(visit.form, _name_to_type(key, await visit.read(_SUBSCRIPTION + "/health", key, **about)))
        await visit.send("DELETE", _SUBSCRIPTION, key, query=about)
        return Moved(below(visit, "/bus"), "deleted")

    async def _act(self, visit: Visit, verb: str, said: str) -> Moved:
        key = visit.path("key")
        await visit.send("POST", _SUBSCRIPTION + verb, key, query={"namespace": read_namespace(visit)})
        return Moved(below(visit, SUBSCRIPTION_PAGE, key), said)


def show_secret(visit: Visit, made: Values) -> Values:
    """What the page tells that shows a secret for this one time."""
    told = {"title": made["key"], "key": made["key"], "secret": made.get("secret", ""), "hours": None}
    return tell_whose(visit) | told


def _name_to_type(key: str, health: Values | None) -> str:
    """What is typed before it is deleted: nothing where few events wait, or nobody knows how many."""
    return key if health and health["queued"] > MANY_THINGS else ""
