"""How a subscription stands, in one word and one sentence: what is wrong comes first."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.visits import Visit

Shown = Mapping[str, Any]
"""What the API answers: a subscription, or its health."""

ALL_POINTS = 100
_KEPT_SECONDS = 2
_RANKS = {"suspended": 0, "failing": 1, "unknown": 2, "paused": 3, "recovering": 4, "healthy": 5}
_TROUBLE = frozenset({"suspended", "failing"})


class SubscriptionStanding(Struct, frozen=True, kw_only=True):
    """A subscription and its health, which is `None` where it could not be read. `word` says how it stands, `why` tells
    more, and `since` when it began, where that is known."""

    subscription: Shown
    health: Shown | None
    word: str
    why: str = ""
    since: str | None = None

    @property
    def host(self) -> str:
        """Whom it calls, without the path: that may be long, and a secret."""
        return host_of(self.subscription["callback"])

    @property
    def is_trouble(self) -> bool:
        """Whether somebody should look at it."""
        return self.word in _TROUBLE


def host_of(url: str) -> str:
    """Whom a URL calls; itself where it has no host."""
    try:
        return urlsplit(url).netloc or url
    except ValueError:
        return url


def stand(subscription: Shown, health: Shown | None) -> SubscriptionStanding:
    """How this subscription stands."""
    word, why, since = _judge(subscription, health)
    return SubscriptionStanding(subscription=subscription, health=health, word=word, why=why, since=since)


def _judge(subscription: Shown, health: Shown | None) -> tuple[str, str, str | None]:
    if subscription["state"] != "active":
        return subscription["state"], subscription["reason"], subscription["updated_at"]
    if health is None:
        return "unknown", "", None
    if count := health["failures"]:
        why = "the last call failed" if count == 1 else f"{count:,} calls in a row failed"
        return "failing", why, health["failing_since"]
    return ("healthy" if health["points"] >= ALL_POINTS else "recovering"), "", None


async def _read_healths(visit: Visit, keys: Sequence[str], namespace: str) -> Sequence[Shown | None]:
    """The health of each of these subscriptions; `None` for one that was removed meanwhile. Raises `ApiProblem`."""
    return await visit.read_all(*(_read_health(visit, key, namespace) for key in keys))


async def _read_health(visit: Visit, key: str, namespace: str) -> Shown | None:
    try:
        found: Shown = await visit.read("/bus/subscriptions/{}/health", key, namespace=namespace)
    except ApiProblem as problem:
        if problem.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    return found


async def read_standings(visit: Visit, subscriptions: Sequence[Shown], namespace: str) -> list[SubscriptionStanding]:
    """How each of these subscriptions stands, the worst first, else by key. Whoever may list them may know that, so all
    who look share it."""
    keys = [each["key"] for each in subscriptions]
    shared = ("/bus/subscriptions/health", namespace or visit.caller.namespace, *keys)
    reading = visit.read_shared(shared, lambda: _read_healths(visit, keys, namespace), seconds=_KEPT_SECONDS)
    healths = await visit.attempt("The health of receivers", reading) or [None] * len(keys)
    standings = [stand(each, health) for each, health in zip(subscriptions, healths, strict=True)]
    return sorted(standings, key=lambda each: _RANKS.get(each.word, 0))
