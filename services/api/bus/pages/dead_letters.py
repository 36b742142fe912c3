"""`/ui/bus/dead-letters`: events that no receiver has taken, to be tried again or discarded."""

from http import HTTPStatus

from services.api.bus.pages.bus import SECTION
from services.api.bus.pages.history import is_success
from services.api.bus.pages.whose import below, read_namespace, tell_whose
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import FormRoute, Moved, NavTab, PageRoute, PageSet, Values
from services.api.http.pages.visits import SHOWN, Visit

_ITS_OWN = {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.GONE}
"""What concerns one letter alone."""

_HEALTH = "/bus/subscriptions/{}/health"
_LETTER = "/bus/dead-letters/{}"
_PAGE = "/bus/dead-letters/{letter_id:str}"


class BusDeadLetterPages(PageSet):
    """The pages of the bus's dead letters."""

    tab = NavTab("Bus", "/bus/dead-letters", under="/dead-letters", order=10)

    @PageRoute("/bus/dead-letters", template="bus/dead-letters.html", refresh_seconds=5, section=SECTION.path)
    async def show_dead_letters(self, visit: Visit) -> Values:
        """The newest first, of a namespace or of one of its subscriptions."""
        key, about = visit.query("key"), {"namespace": read_namespace(visit)}
        found = await visit.read_list("/bus/dead-letters", key=key, **about)
        health = await visit.try_read("Their number", _HEALTH, key, **about) if key else None
        return tell_whose(visit) | {
            "title": f"Dead letters of {key}" if key else "Dead letters of the bus",
            "key": key,
            "health": health,
            "found": found.value,
            "reasons": _count_reasons(found.value),
            "next": found.next,
            "is_success": is_success,
        }

    @PageRoute(_PAGE, template="bus/dead-letter.html", section=SECTION.path)
    async def show_dead_letter(self, visit: Visit) -> Values:
        """One of them, with its events."""
        letter = await visit.read(_LETTER, visit.path("letter_id"), namespace=read_namespace(visit))
        return tell_whose(visit) | {
            "title": f"Dead letter of {letter['key']}",
            "letter": letter,
            "events": letter["events"][:SHOWN],
            "more": len(letter["events"]) - SHOWN,
            "is_loss": letter["last_at"] is not None,
            "is_success": is_success,
        }

    @FormRoute(_PAGE + "/retry", page="show_dead_letter")
    async def retry_dead_letter(self, visit: Visit) -> Moved:
        """Deliver it again. Of a loss the events are replayed: that page tells how far it is."""
        letter = await visit.read(_LETTER, visit.path("letter_id"), namespace=read_namespace(visit))
        await visit.send("POST", _LETTER + "/retry", letter["id"], query={"namespace": read_namespace(visit)})
        if letter["last_at"] is not None:
            return Moved(below(visit, "/bus/subscriptions/{}/replays", letter["key"]), "begun")
        return Moved(below(visit, "/bus/deliveries/{}", letter["id"]), "retried")

    @FormRoute(_PAGE + "/discard", page="show_dead_letter")
    async def discard_dead_letter(self, visit: Visit) -> Moved:
        """Discard it."""
        letter = await visit.read(_LETTER, visit.path("letter_id"), namespace=read_namespace(visit))
        await visit.send("POST", _LETTER + "/discard", letter["id"], query={"namespace": read_namespace(visit)})
        return Moved(below(visit, "/bus/dead-letters", key=letter["key"]), "discarded")

    @FormRoute("/bus/dead-letters/retry-chosen", page="show_dead_letters")
    async def retry_chosen(self, visit: Visit) -> Moved:
        """Deliver those again that were chosen."""
        return await self._act_on_chosen(visit, "/retry", "retried-some")

    @FormRoute("/bus/dead-letters/discard-chosen", page="show_dead_letters")
    async def discard_chosen(self, visit: Visit) -> Moved:
        """Discard those that were chosen."""
        return await self._act_on_chosen(visit, "/discard", "discarded-some")

    @FormRoute("/bus/dead-letters/retry", page="show_dead_letters")
    async def retry_dead_letters(self, visit: Visit) -> Moved:
        """Deliver those of a subscription again, or all: as many as one request of the API does."""
        key, about = visit.query("key"), {"namespace": read_namespace(visit)}
        done = await visit.send("POST", "/bus/dead-letters/retry", body={"key": key}, query=about)
        said = "retried-of-more" if done["more"] else "retried-some"
        return Moved(below(visit, "/bus/dead-letters", key=key), said, done["retried"])

    async def _act_on_chosen(self, visit: Visit, verb: str, said: str) -> Moved:
        """Do it to one after the other. One that refuses, or that somebody else was quicker with, stays as it is and
        does not hold up the others."""
        chosen, done = visit.lists.get("chosen", [])[:SHOWN], 0
        if not chosen:
            raise ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, "choose some of them first", "chosen")
        for letter_id in chosen:
            try:
                await visit.send("POST", _LETTER + verb, letter_id, query={"namespace": read_namespace(visit)})
                done += 1
            except ApiProblem as problem:
                if problem.status not in _ITS_OWN:
                    raise
        return Moved(below(visit, "/bus/dead-letters", key=visit.query("key")), said, done)


def _count_reasons(letters: list[Values]) -> dict[str, int]:
    """How many events these letters hold, by why nobody has taken them."""
    counts: dict[str, int] = {}
    for letter in letters:
        counts[letter["reason"]] = counts.get(letter["reason"], 0) + letter["count"]
    return counts
