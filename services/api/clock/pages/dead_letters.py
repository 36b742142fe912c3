"""`/ui/dead-letters`: instants of schedules that were refused to the last attempt: to be tried again or discarded."""

from typing import Any

from services.api.clock.pages.schedules import tell_callback
from services.api.http.pages.filters import query_of
from services.api.http.pages.namespaces import chosen_namespace, read_choice, read_names, tell_namespace
from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values
from services.api.http.pages.typed import act_on_chosen
from services.api.http.pages.visits import SHOWN, Visit

LETTERS = "/dead-letters"
_ONE = "/dead-letters/{letter_id:str}"
_READ, _READS = 200, 5

Letters = list[dict[str, Any]]


class DeadLetterPages(PageSet):
    section = NavSection(
        "Dead letters", LETTERS, order=200, group="Problems", needs=("dead-letters", "bus-dead-letters")
    )
    tab = NavSection("Schedules", LETTERS, under=LETTERS, order=0)

    @PageRoute(LETTERS, template="clock/dead-letters.html", refresh_seconds=5)
    async def show_letters(self, visit: Visit) -> Values:
        chosen, key = chosen_namespace(visit), visit.query("key")
        errors, choice, (letters, following) = await visit.read_all(
            visit.read("/dead-letters/errors", namespace=chosen, key=key),
            read_choice(visit, chosen),
            _find(visit, chosen, key, visit.query("error")),
        )
        return {
            "title": "Dead letters",
            "choice": choice,
            "errors": errors,
            "counted": sum(each["count"] for each in errors),
            "letters": letters,
            "next": following,
            "redacted": any(letter["redacted"] for letter in letters),
        }

    @FormRoute(LETTERS, acts=("retry", "discard"), page="show_letters")
    async def act_on_letters(self, visit: Visit) -> Moved:
        """Retry or discard the chosen ones. A value is a namespace and an id."""
        return await act_on_chosen(visit, _back(visit), lambda chosen: _act(visit, *chosen.split(" ", 1)))

    @PageRoute(_ONE, template="clock/dead-letter.html", refresh_seconds=5)
    async def show_letter(self, visit: Visit) -> Values:
        namespace = visit.query("namespace") or visit.caller.namespace
        letter, names = await visit.read_all(
            visit.read("/dead-letters/{}", visit.path("letter_id"), namespace=namespace), read_names(visit)
        )
        callback, schedule = letter["callback"], None
        if callback:
            schedule = await visit.try_read(
                "Its schedule", "/schedules/{}", letter["key"], namespace=letter["namespace"]
            )
        return {
            "title": f"Dead letter of {letter['key']}",
            "letter": letter,
            "whose": tell_namespace(letter["namespace"], names),
            "does": tell_callback(callback) if callback else "",
            "is_over": schedule is not None and not schedule["next"],
        }

    @FormRoute(_ONE, acts=("retry", "discard"), page="show_letter")
    async def act_on_letter(self, visit: Visit) -> Moved:
        await _act(visit, visit.query("namespace"), visit.path("letter_id"))
        return Moved(_back(visit), {"retry": "retried", "discard": "discarded"}[visit.act])


async def _find(visit: Visit, namespace: str, key: str, error: str) -> tuple[Letters, str]:
    """A page of letters, and where the next one begins. The API cannot filter by error, so with `error` pages are read
    until one is full."""
    if not error:
        answer = await visit.read_list("/dead-letters", namespace=namespace, key=key)
        return answer.value, answer.next
    found: Letters = []
    cursor = visit.query("cursor")
    for _ in range(_READS):
        answer = await visit.read_list("/dead-letters", namespace=namespace, key=key, limit=_READ, cursor=cursor)
        found += [letter for letter in answer.value if letter["error"] == error]
        cursor = answer.next
        if not cursor or len(found) >= SHOWN:
            break
    return found, cursor


async def _act(visit: Visit, namespace: str, letter_id: str = "") -> None:
    await visit.send("POST", f"/dead-letters/{{}}/{visit.act}", letter_id, query={"namespace": namespace})


def _back(visit: Visit) -> str:
    return LETTERS + query_of(**{name: visit.query(name) for name in ("namespace", "key", "error")})
