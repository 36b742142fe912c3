"""How a subscription stands, in one word and one sentence, and how it stood: as far as its last deliveries tell, since
the bus keeps no other history."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from services.api.http.pages.filters import known_time, read_time
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.pictures import Piece
from services.api.http.pages.visits import Visit

Shown = Mapping[str, Any]
"""A subscription, its health, or a delivery, as the API answers."""
Deliveries = Sequence[Shown]

ALL_POINTS = 100
_KEPT_SECONDS = 2
_RANKS = {"suspended": 0, "failing": 1, "unknown": 2, "paused": 3, "recovering": 4, "healthy": 5}
_TROUBLE = frozenset({"suspended", "failing"})

DELIVERIES = 100
"""How many deliveries a picture is drawn from."""

SLICES = 60
_STEP = timedelta(seconds=15)
_SHORTEST = timedelta(minutes=1)
_SUCCESSES = range(200, 300)


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


class DeliveryHistory(Struct, frozen=True):
    """Slices of equal length from `begins` to now. `calls` counts the successful and the failed calls of each slice,
    and `waits` is the age in seconds of its oldest waiting event. The API keeps the first and the last calls of a
    delivery; `unknown` counts those in between."""

    begins: datetime
    calls: Sequence[Sequence[Piece]]
    waits: Sequence[float]
    unknown: int

    @property
    def taken(self) -> int:
        """The accepted calls."""
        return int(sum(pieces[0].size for pieces in self.calls))

    @property
    def failed(self) -> int:
        """How many calls failed."""
        return int(sum(pieces[1].size for pieces in self.calls))


def is_success(attempt: Shown) -> bool:
    """Whether the receiver accepted the call."""
    return attempt["status"] in _SUCCESSES


def draw_history(deliveries: Deliveries, now: datetime) -> DeliveryHistory | None:
    """The history of these deliveries, `None` without any. It ends at the next multiple of a step, so the page does not
    change while nothing happens."""
    if not deliveries:
        return None
    now += -(now - datetime.min.replace(tzinfo=UTC)) % _STEP
    begins = min([known_time(each["cut_at"]) for each in deliveries] + [now - _SHORTEST])
    step = (now - begins) / SLICES
    taken, failed = [0] * SLICES, [0] * SLICES
    for attempt in (attempt for delivery in deliveries for attempt in delivery["attempts"]):
        (taken if is_success(attempt) else failed)[_slice(known_time(attempt["at"]), begins, step)] += 1
    calls = [
        (Piece("taken", good, "good"), Piece("failed", bad, "bad")) for good, bad in zip(taken, failed, strict=True)
    ]
    unknown = sum(each["made"] - len(each["attempts"]) for each in deliveries)
    return DeliveryHistory(begins, calls, _find_oldest(deliveries, begins, step, now), unknown)


def _find_oldest(deliveries: Deliveries, begins: datetime, step: timedelta, now: datetime) -> list[float]:
    """How old the oldest event was in each slice: at its end, or when it was settled in it."""
    oldest = [0.0] * SLICES
    for delivery in deliveries:
        arrived, settled = known_time(delivery["first_at"]), read_time(delivery["settled_at"]) or now
        for index in range(_slice(known_time(delivery["cut_at"]), begins, step), _slice(settled, begins, step) + 1):
            at = min(settled, begins + step * (index + 1))
            oldest[index] = max(oldest[index], (at - arrived).total_seconds())
    return oldest


def _slice(at: datetime, begins: datetime, step: timedelta) -> int:
    return min(max(int((at - begins) / step), 0), SLICES - 1)
