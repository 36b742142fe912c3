"""The deliveries of a subscription with their calls, its replays, and dead letters."""

from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus

from services.api.bus.pages.subscriptions import SECTION, SUBSCRIPTION, below, read_namespace, tell_whose
from services.api.http.pages.routes import (
    FormRoute,
    Moved,
    NavSection,
    PageRoute,
    PageSet,
    Values,
    act_on_chosen,
    read_instant,
)
from services.api.http.pages.visits import SHOWN, ApiProblem, Visit
from shared.core.instants import format_maybe

_STATUSES = (("", "all"), *((status, status) for status in ("open", "delivered", "dead", "discarded")))
_REFRESH_SECONDS = 2

_DELIVERIES = "/bus/subscriptions/{key:str}/deliveries"
_DELIVERY = "/bus/deliveries/{}"
_REPLAYS = SUBSCRIPTION + "/replays"
_REPLAYS_PAGE = "/bus/subscriptions/{key:str}/replays"
_USUAL_REPLAY = timedelta(hours=1)
_LETTERS = "/bus/dead-letters"
_LETTER = "/bus/dead-letters/{}"
_LETTER_PAGE = "/bus/dead-letters/{letter_id:str}"


class DeliveryPages(PageSet):
    section = SECTION

    @PageRoute(_DELIVERIES, template="bus/deliveries.html", refresh_seconds=2)
    async def show_deliveries(self, visit: Visit) -> Values:
        key, status = visit.path("key"), visit.query("status")
        about = {"namespace": read_namespace(visit), "status": status}
        found = await visit.read_list(SUBSCRIPTION + "/deliveries", key, **about)
        return tell_whose(visit) | {
            "title": f"Deliveries of {key}",
            "key": key,
            "status": status,
            "statuses": _STATUSES,
            "found": found.value,
            "next": found.next,
        }

    @PageRoute("/bus/deliveries/{delivery_id:str}", template="bus/delivery.html")
    async def show_delivery(self, visit: Visit) -> Values:
        """One of them. It asks for itself while it is open; then its events need not be read from the log."""
        delivery = await visit.read(_DELIVERY, visit.path("delivery_id"), namespace=read_namespace(visit))
        events, gone = ([], "") if delivery["redacted"] else await self._read_events(visit)
        return tell_whose(visit) | {
            "title": f"Delivery {delivery['sequence']}",
            "delivery": delivery,
            "events": events[:SHOWN],
            "more": len(events) - SHOWN,
            "gone": gone,
            "refresh_seconds": 0 if delivery["settled_at"] else _REFRESH_SECONDS,
        }

    async def _read_events(self, visit: Visit) -> tuple[list[object], str]:
        about = {"namespace": read_namespace(visit), "events": True}
        try:
            return (await visit.read(_DELIVERY, visit.path("delivery_id"), **about))["events"], ""
        except ApiProblem as problem:
            if problem.status != HTTPStatus.GONE:
                visit.unknown.append(("Its events", problem.detail))
            return [], problem.detail

    @PageRoute(_REPLAYS_PAGE, template="bus/replays.html", refresh_seconds=2)
    async def show_replays(self, visit: Visit) -> Values:
        key = visit.path("key")
        subscription = await visit.read(SUBSCRIPTION, key, namespace=read_namespace(visit))
        found = await visit.read_list(_REPLAYS, key, namespace=read_namespace(visit))
        usual = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - _USUAL_REPLAY
        return tell_whose(visit) | {
            "title": f"Replays of {key}",
            "key": key,
            "subscription": subscription,
            "found": found.value,
            "next": found.next,
            "open": [each for each in found.value if each["ended_at"] is None],
            "usual": f"{usual:%Y-%m-%dT%H:%M}",
        }

    @FormRoute(_REPLAYS_PAGE, page="show_replays")
    async def start_replay(self, visit: Visit) -> Moved:
        key = visit.path("key")
        begin, end = read_instant(visit.form, "from"), read_instant(visit.form, "to")
        given = {"from": format_maybe(begin), "to": format_maybe(end), "topics": visit.read_field("topics").split()}
        body = {name: value for name, value in given.items() if value is not None}
        await visit.send("POST", _REPLAYS, key, body=body, query={"namespace": read_namespace(visit)})
        return Moved(below(visit, _REPLAYS, key), "begun")

    @FormRoute(_REPLAYS_PAGE + "/cancel", page="show_replays")
    async def cancel_replays(self, visit: Visit) -> Moved:
        key = visit.path("key")
        await visit.send("DELETE", _REPLAYS, key, query={"namespace": read_namespace(visit)})
        return Moved(below(visit, _REPLAYS, key), "cancelled")


class BusDeadLetterPages(PageSet):
    section = SECTION
    tab = NavSection("Bus", _LETTERS, under="/dead-letters", order=10)

    @PageRoute(_LETTERS, template="bus/dead-letters.html", refresh_seconds=5)
    async def show_dead_letters(self, visit: Visit) -> Values:
        key, about = visit.query("key"), {"namespace": read_namespace(visit)}
        found = await visit.read_list(_LETTERS, key=key, **about)
        health = await visit.try_read("Their number", SUBSCRIPTION + "/health", key, **about) if key else None
        return tell_whose(visit) | {
            "title": f"Dead letters of {key}" if key else "Dead letters of the bus",
            "key": key,
            "health": health,
            "found": found.value,
            "reasons": _count_reasons(found.value),
            "next": found.next,
        }

    @PageRoute(_LETTER_PAGE, template="bus/dead-letter.html")
    async def show_dead_letter(self, visit: Visit) -> Values:
        letter = await _read_letter(visit)
        return tell_whose(visit) | {
            "title": f"Dead letter of {letter['key']}",
            "letter": letter,
            "events": letter["events"][:SHOWN],
            "more": len(letter["events"]) - SHOWN,
            "is_loss": letter["last_at"] is not None,
        }

    @FormRoute(_LETTER_PAGE + "/retry", page="show_dead_letter")
    async def retry_dead_letter(self, visit: Visit) -> Moved:
        """Deliver it again. If its events were lost, they are replayed, and the page of replays shows the
        progress."""
        letter = await _read_letter(visit)
        await _act(visit, letter["id"])
        if letter["last_at"] is not None:
            return Moved(below(visit, _REPLAYS, letter["key"]), "begun")
        return Moved(below(visit, _DELIVERY, letter["id"]), "retried")

    @FormRoute(_LETTER_PAGE + "/discard", page="show_dead_letter")
    async def discard_dead_letter(self, visit: Visit) -> Moved:
        letter = await _read_letter(visit)
        await _act(visit, letter["id"])
        return Moved(below(visit, _LETTERS, key=letter["key"]), "discarded")

    @FormRoute(_LETTERS + "/chosen", acts=("retry", "discard"), page="show_dead_letters")
    async def act_on_chosen(self, visit: Visit) -> Moved:
        return await act_on_chosen(visit, below(visit, _LETTERS, key=visit.query("key")), partial(_act, visit))

    @FormRoute(_LETTERS + "/retry", page="show_dead_letters")
    async def retry_dead_letters(self, visit: Visit) -> Moved:
        """Retry those of a subscription, or all: as many as one request of the API does."""
        key, about = visit.query("key"), {"namespace": read_namespace(visit)}
        done = await visit.send("POST", _LETTERS + "/retry", body={"key": key} if key else {}, query=about)
        said = "retried-of-more" if done["more"] else "retried-some"
        return Moved(below(visit, _LETTERS, key=key), said, done["retried"])


async def _read_letter(visit: Visit) -> Values:
    letter: Values = await visit.read(_LETTER, visit.path("letter_id"), namespace=read_namespace(visit))
    return letter


async def _act(visit: Visit, letter_id: str) -> None:
    await visit.send("POST", f"{_LETTER}/{visit.act}", letter_id, query={"namespace": read_namespace(visit)})


def _count_reasons(letters: list[Values]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for letter in letters:
        counts[letter["reason"]] = counts.get(letter["reason"], 0) + letter["count"]
    return counts
