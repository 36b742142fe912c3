"""`/ui/bus`, `/ui/bus/subscriptions/…` and `/ui/bus/topics/…`: the health of subscriptions, how to make and change one,
and what is published.

Each page of the bus is about one namespace: the reader's own, or the one that `?namespace=` names, which every link and
form hands on.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import msgspec

from services.api.http.pages.html import query_of
from services.api.http.pages.namespaces import read_choice
from services.api.http.pages.routes import (
    FormRoute,
    Moved,
    NavSection,
    PageRoute,
    PageSet,
    Values,
    check_name,
    name_if_many,
    read_lines,
    read_pairs,
    read_whole,
    refuse,
)
from services.api.http.pages.visits import ApiProblem, Visit, address

SECTION = NavSection(
    "Subscriptions", "/bus", order=120, group="Bus", needs=("failing-receivers", "suspended-subscriptions")
)
_TOPICS = NavSection("Topics", "/bus/topics", order=130, group="Bus")
SUBSCRIPTION = "/bus/subscriptions/{}"
_AT_ONCE = 20  # the health of each is read by itself
_SHOWN = 10
_KEPT_SECONDS = 2
_ALL = 100
_RANKS = {"suspended": 0, "failing": 1, "unknown": 2, "paused": 3, "recovering": 4, "healthy": 5}
_TROUBLE = frozenset({"suspended", "failing"})

_PAGE = "/bus/subscriptions/{key:str}"
_TOPIC, _TOPIC_PAGE = "/bus/topics/{}", "/bus/topics/{topic:str}"
_COUNTED = 200  # among so many subscriptions of the namespace those of a topic are looked for
_NEW = "/bus/new-subscription"  # a key `new` may be somebody's
_SAID = {"pause": "paused", "resume": "resumed"}
_NUMBERS = ("max_events", "max_bytes", "timeout_ms", "in_flight", "max_attempts", "max_age_hours")
_TEXTS = ("callback", "uuid", "contact")
_BLANK: Values = {
    "key": "", "callback": "", "topics": (), "filter": {"types": (), "url_prefix": "", "data": ()}, "headers": {},
    "max_events": 100, "max_bytes": 2**20, "timeout_ms": 500, "ordered": False, "in_flight": 8, "max_attempts": 20,
    "max_age_hours": 72, "uuid": "", "contact": "",
}  # fmt: skip

Shown = Mapping[str, Any]
"""A subscription, its health, or an attempt, as the API answers."""


def read_namespace(visit: Visit) -> str:
    """The namespace that the address names, `""` for the reader's own."""
    return visit.query("namespace")


def below(visit: Visit, path: str, *parts: str, **query: str) -> str:
    """An address below `/ui` that is about the same namespace."""
    return address(path, *parts) + query_of(namespace=read_namespace(visit), **query)


def tell_whose(visit: Visit) -> Values:
    """The values of every template of the bus: the namespace, and whether the reader may operate or own it."""
    namespace = read_namespace(visit) or visit.caller.namespace
    return {
        "namespace": namespace,
        "is_own": namespace == visit.caller.namespace,
        "operates": visit.may("operator", namespace=namespace),
        "owns": visit.may("admin", namespace=namespace),
        "where": below(visit, ""),
        "below": lambda path, *parts, **query: below(visit, path, *parts, **query),
        "is_success": is_success,
    }


class SubscriptionPages(PageSet):
    section = SECTION

    @PageRoute("/bus", template="bus/bus.html", refresh_seconds=2)
    async def show_bus(self, visit: Visit) -> Values:
        found = await visit.read_list("/bus/subscriptions", namespace=read_namespace(visit), limit=_AT_ONCE)
        pressure = await visit.try_read("The load of the whole bus", "/bus/pressure")
        standings = await _read_standings(visit, found.value)
        return tell_whose(visit) | {
            "title": "Subscriptions",
            "standings": standings,
            "troubled": [each for each in standings if each["is_trouble"]],
            "pressure": pressure,
            "next": found.next,
            "choice": await read_choice(visit, read_namespace(visit) or visit.caller.namespace),
        }

    @PageRoute(_PAGE, template="bus/subscription.html", refresh_seconds=2)
    async def show_subscription(self, visit: Visit) -> Values:
        key, about = visit.path("key"), {"namespace": read_namespace(visit)}
        subscription = await visit.read(SUBSCRIPTION, key, **about)
        health, deliveries, replays = await visit.read_all(
            visit.try_read("Its health", SUBSCRIPTION + "/health", key, **about),
            visit.try_read("Its deliveries", SUBSCRIPTION + "/deliveries", key, limit=_SHOWN, **about),
            visit.try_read("Its replays", SUBSCRIPTION + "/replays", key, limit=1, **about),
        )
        return tell_whose(visit) | {
            "title": key,
            "standing": stand(subscription, health),
            "name": name_if_many(key, health["queued"] if health else 0),
            "deliveries": deliveries or (),
            "replays": [each for each in replays or () if each["ended_at"] is None],
        }

    @FormRoute(_PAGE, acts=("pause", "resume"), page="show_subscription")
    async def move_subscription(self, visit: Visit) -> Moved:
        key, about = visit.path("key"), {"namespace": read_namespace(visit)}
        await visit.send("POST", f"{SUBSCRIPTION}/{visit.act}", key, query=about)
        return Moved(below(visit, SUBSCRIPTION, key), _SAID[visit.act])

    @FormRoute(_PAGE + "/test", page="show_subscription", template="bus/tried.html")
    async def try_receiver(self, visit: Visit) -> Values:
        key = visit.path("key")
        attempt = await visit.send("POST", SUBSCRIPTION + "/test", key, query={"namespace": read_namespace(visit)})
        return tell_whose(visit) | {"title": f"Test of {key}", "key": key, "attempt": attempt}

    @FormRoute(_PAGE + "/secrets", page="show_subscription", template="bus/secret.html")
    async def rotate_secret(self, visit: Visit) -> Values:
        key, hours = visit.path("key"), read_whole(visit.form, "keep_hours")
        body, about = {"keep_hours": hours}, {"namespace": read_namespace(visit)}
        made = await visit.send("POST", SUBSCRIPTION + "/secrets", key, body=body, query=about)
        return _show_secret(visit, made) | {"hours": hours}

    @FormRoute(_PAGE + "/delete", page="show_subscription")
    async def delete_subscription(self, visit: Visit) -> Moved:
        key, about = visit.path("key"), {"namespace": read_namespace(visit)}
        health = await visit.read(SUBSCRIPTION + "/health", key, **about)
        check_name(visit.form, name_if_many(key, health["queued"]))
        await visit.send("DELETE", SUBSCRIPTION, key, query=about)
        return Moved(below(visit, "/bus"), "deleted")

    @PageRoute(_NEW, template="bus/definition.html")
    async def show_new(self, visit: Visit) -> Values:
        return tell_whose(visit) | {"title": "New subscription", "is_new": True} | _fill_in(visit, _BLANK)

    @FormRoute(_NEW, page="show_new", template="bus/secret.html")
    async def make_subscription(self, visit: Visit) -> Values:
        key = visit.read_field("subscription_key")  # a form's field `key` is that of its idempotency
        await _check_key(visit, key)
        return _show_secret(visit, await visit.send("PUT", SUBSCRIPTION, key, body=_read_body(visit)))

    @PageRoute(_PAGE + "/edit", template="bus/definition.html")
    async def show_edit(self, visit: Visit) -> Values:
        subscription = await visit.read(SUBSCRIPTION, visit.path("key"))
        title = f"Change {subscription['key']}"
        return tell_whose(visit) | {"title": title, "is_new": False} | _fill_in(visit, subscription)

    @FormRoute(_PAGE + "/edit", page="show_edit")
    async def change_subscription(self, visit: Visit) -> Moved:
        key = visit.path("key")
        await visit.read(SUBSCRIPTION, key)  # the route would make one that is not there
        await visit.send("PUT", SUBSCRIPTION, key, body=_read_body(visit))
        return Moved(below(visit, SUBSCRIPTION, key), "saved")


class BusTopicPages(PageSet):
    section = _TOPICS

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

    @PageRoute(_TOPIC_PAGE, template="bus/topic.html", refresh_seconds=5)
    async def show_topic(self, visit: Visit) -> Values:
        topic = await visit.read(_TOPIC, visit.path("topic"))
        keys, is_whole = await self._find_subscribers(visit)
        return tell_whose(visit) | {
            "title": topic["name"],
            "topic": topic,
            "name": name_if_many(topic["name"], topic["events"]),
            "keys": [key for key, topics in keys.items() if topic["name"] in topics],
            "is_whole": is_whole,
            "is_mine": topic["owner"] == visit.caller.namespace,
        }

    @FormRoute(_TOPIC_PAGE + "/private", page="show_topic")
    async def make_private(self, visit: Visit) -> Moved:
        return await self._set_private(visit, private=True)

    @FormRoute(_TOPIC_PAGE + "/open", page="show_topic")
    async def open_topic(self, visit: Visit) -> Moved:
        return await self._set_private(visit, private=False)

    async def _set_private(self, visit: Visit, *, private: bool) -> Moved:
        topic = visit.path("topic")
        await visit.read(_TOPIC, topic)  # the route would make one that is not there
        await visit.send("PUT", _TOPIC, topic, body={"private": private})
        return Moved(below(visit, _TOPIC, topic), "saved")

    @FormRoute(_TOPIC_PAGE + "/delete", page="show_topic")
    async def delete_topic(self, visit: Visit) -> Moved:
        topic = visit.path("topic")
        events = (await visit.read(_TOPIC, topic))["events"]
        check_name(visit.form, name_if_many(topic, events))
        await visit.send("DELETE", _TOPIC, topic)
        return Moved(below(visit, "/bus/topics"), "deleted")

    async def _find_subscribers(self, visit: Visit) -> tuple[Shown, bool]:
        try:
            found = await visit.read_list(
                "/bus/subscriptions", namespace=read_namespace(visit), limit=_COUNTED, cursor=""
            )
        except ApiProblem as problem:
            visit.unknown.append(("The subscriptions of topics", problem.detail))
            return {}, False
        return {each["key"]: each["topics"] for each in found.value}, not found.next


def is_success(attempt: Shown) -> bool:
    return attempt["status"] in range(200, 300)


def stand(subscription: Shown, health: Shown | None) -> Values:
    """The health of a subscription: in a `word`, `why`, and `since` when, as far as that is known."""
    word, why, since = "unknown", "", None
    if subscription["state"] != "active":
        word, why, since = subscription["state"], subscription["reason"], subscription["updated_at"]
    elif health is not None and (count := health["failures"]):
        why = "the last call failed" if count == 1 else f"{count:,} calls in a row failed"
        word, since = "failing", health["failing_since"]
    elif health is not None:
        word = "healthy" if health["accepted_percent"] == _ALL else "recovering"
    host = _host_of(subscription["callback"])
    about = {"subscription": subscription, "health": health, "host": host, "is_trouble": word in _TROUBLE}
    return about | {"word": word, "why": why, "since": since}


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).netloc or url
    except ValueError:
        return url


async def _read_health(visit: Visit, key: str) -> Shown | None:
    try:
        found: Shown = await visit.read(SUBSCRIPTION + "/health", key, namespace=read_namespace(visit))
    except ApiProblem as problem:
        if problem.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    return found


async def _read_standings(visit: Visit, subscriptions: Sequence[Shown]) -> list[Values]:
    """The health of each of these subscriptions, the worst first, else by key. All readers who may list them share the
    reading."""
    keys = [each["key"] for each in subscriptions]
    shared = ("/bus/subscriptions/health", read_namespace(visit) or visit.caller.namespace, *keys)

    async def read() -> Sequence[Shown | None]:
        return await visit.read_all(*(_read_health(visit, key) for key in keys))

    reading = visit.read_shared(shared, read, seconds=_KEPT_SECONDS)
    healths = await visit.attempt("The health of receivers", reading) or [None] * len(keys)
    standings = [stand(each, health) for each, health in zip(subscriptions, healths, strict=True)]
    return sorted(standings, key=lambda each: _RANKS.get(each["word"], 0))


def read_condition(line: str) -> Values:
    """`/total gt 10` as the API takes it. The value is JSON, else a text."""
    path, _, rest = line.strip().partition(" ")
    op, _, text = rest.strip().partition(" ")
    return {"path": path, "op": op, "value": _read_value(text.strip()) if text.strip() else True}


def _read_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


async def _check_key(visit: Visit, key: str) -> None:
    """Raise `ApiProblem` for a key that is taken, because the route would change that subscription, or that no path can
    contain."""
    if not key or key in {".", ".."} or "/" in key:
        raise refuse("key", "a key has 1 to 255 of letters, digits and - _ . ~ :")
    try:
        await visit.read(SUBSCRIPTION, key)
    except ApiProblem as problem:
        if problem.status != HTTPStatus.NOT_FOUND:
            raise
    else:
        raise refuse("key", f"there is a subscription {key} already")


def _read_body(visit: Visit) -> Values:
    body: Values = {name: visit.read_field(name) for name in _TEXTS}
    body |= {name: number for name in _NUMBERS if (number := read_whole(visit.form, name)) is not None}
    body["topics"] = visit.read_field("topics").split()
    body["ordered"] = "ordered" in visit.form
    body["filter"] = {
        "types": visit.read_field("types").split(),
        "url_prefix": visit.read_field("url_prefix"),
        "data": [read_condition(line) for line in read_lines(visit.form, "conditions")],
    }
    if "no_headers" in visit.form:
        body["headers"] = {}
    elif headers := read_pairs(visit.form, "headers"):
        body["headers"] = headers
    return body


def _fill_in(visit: Visit, stands: Values) -> Values:
    """The fields' values: as typed, else as stored. Values of headers are never shown."""
    wanted = stands["filter"]
    shown = {name: stands[name] for name in (*_TEXTS, *_NUMBERS)} | {
        "subscription_key": stands["key"],
        "topics": " ".join(stands["topics"]),
        "types": " ".join(wanted["types"]),
        "url_prefix": wanted["url_prefix"],
        "conditions": "\n".join(
            f"{each['path']} {each['op']} {msgspec.json.encode(each['value']).decode()}" for each in wanted["data"]
        ),
        "headers": "",
    }
    return {
        "fields": shown | {name: typed for name, typed in visit.form.items() if name in shown},
        "ordered": "ordered" in visit.form if visit.form else stands["ordered"],
        "headers": sorted(stands["headers"]),
        "key": stands["key"],
    }


def _show_secret(visit: Visit, made: Values) -> Values:
    told = {"title": made["key"], "key": made["key"], "secret": made.get("secret", ""), "hours": None}
    return tell_whose(visit) | told
