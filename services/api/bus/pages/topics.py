"""`/ui/bus/topics`: what is published, by whom, and who of a namespace gets it."""

from collections.abc import Mapping
from typing import Any

from services.api.bus.pages.subscriptions import SECTION, below, read_namespace, tell_whose
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.typed import MANY_THINGS, check_name
from services.api.http.pages.visits import Visit

_COUNTED = 200
"""Among so many subscriptions of the namespace those of a topic are looked for."""

_TOPIC = "/bus/topics/{}"
_PAGE = "/bus/topics/{topic:str}"


class BusTopicPages(PageSet):
    section = SECTION

    @PageRoute("/bus/topics", template="bus/topics.html", refresh_seconds=5)
    async def show_topics(self, visit: Visit) -> Values:
        found = await visit.read_list("/bus/topics")
        keys, is_whole = await self._find_subscribers(visit)
        counts = {each["name"]: sum(each["name"] in topics for topics in keys.values()) for each in found.value}
        return tell_whose(visit) | {
            "title": "Topics",
            "found": found.value,
            "next": found.next,
            "counts": counts,
            "is_whole": is_whole,
        }

    @PageRoute(_PAGE, template="bus/topic.html", refresh_seconds=5)
    async def show_topic(self, visit: Visit) -> Values:
        topic = await visit.read(_TOPIC, visit.path("topic"))
        keys, is_whole = await self._find_subscribers(visit)
        return tell_whose(visit) | {
            "title": topic["name"],
            "topic": topic,
            "name": _name_to_type(topic),
            "keys": [key for key, topics in keys.items() if topic["name"] in topics],
            "is_whole": is_whole,
            "is_mine": topic["owner"] == visit.caller.namespace,
        }

    @FormRoute(_PAGE + "/delete", page="show_topic")
    async def delete_topic(self, visit: Visit) -> Moved:
        topic = visit.path("topic")
        check_name(visit.form, _name_to_type(await visit.read(_TOPIC, topic)))
        await visit.send("DELETE", _TOPIC, topic)
        return Moved(below(visit, "/bus/topics"), "deleted")

    async def _find_subscribers(self, visit: Visit) -> tuple[Mapping[str, Any], bool]:
        """The topics of each of the namespace's subscriptions by its key, and whether these are all of them."""
        try:
            found = await visit.read_list(
                "/bus/subscriptions", namespace=read_namespace(visit), limit=_COUNTED, cursor=""
            )
        except ApiProblem as problem:
            visit.unknown.append(("The subscriptions of topics", problem.detail))
            return {}, False
        return {each["key"]: each["topics"] for each in found.value}, not found.next


def _name_to_type(topic: Mapping[str, Any]) -> str:
    """The name that confirms a deletion, `""` for a topic with few events."""
    return str(topic["name"]) if topic["events"] > MANY_THINGS else ""
