"""`GET /bus/subscriptions/{key}/health`: how a subscription's receiver stands, and what waits for it."""

from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.accounts.namespaces import NAMESPACE, namespace_of
from services.api.bus.native.subscriptions import BUS_SUBSCRIPTION, SEGMENTS
from services.api.http import wire
from services.api.http.rights import VIEW_NAMESPACE
from services.api.http.routes import Resource, Route
from services.api.http.wire import Timestamp
from shared.domain.bus.subscriptions import EventSubscription, SubscriptionStatus
from shared.domain.instants import format_maybe
from shared.flow.bus.standing import QueueStandings, ReceiverStanding
from shared.flow.bus.subscribing import Subscribing


class BusHealthView(Struct, frozen=True, kw_only=True):
    """How a receiver stands. It accepted `accepted_calls` of its `last_calls`, which are 20 at most;
    `accepted_percent` is their share, 100 before the first. `points`, from 0 to 100, and the `failures` in a row say
    how long Carillon waits between two calls: the next one is not before `next_probe_at`, `null` if there is no pause.

    The following fields count events: `queued` wait, the first of them since `oldest_at`; `sent` were taken; `dead` are
    dead letters that nobody has tried again; `lost` came into no delivery. `in_flight` deliveries with some of the
    queued ones are made and not settled.
    """

    key: str
    state: SubscriptionStatus
    reason: str
    accepted_percent: int
    accepted_calls: int
    last_calls: int
    points: int
    failures: int
    failing_since: Timestamp | None
    last_attempt_at: Timestamp | None
    next_probe_at: Timestamp | None
    queued: int
    oldest_at: Timestamp | None
    sent: int
    dead: int
    lost: int
    in_flight: int


class BusHealthResource(Resource):
    """The route that tells how a subscription stands."""

    def __init__(self, subscribing: Subscribing, standings: QueueStandings) -> None:
        self._subscribing = subscribing
        self._standings = standings

    @Route(
        "GET", BUS_SUBSCRIPTION + "/health", summary="Tell how a subscription's receiver stands, and what waits.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: BusHealthView}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(NAMESPACE,), segments=SEGMENTS,
    )  # fmt: skip
    async def get_bus_subscription_health(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        subscription = await self._subscribing.get(namespace_of(request), key)
        return wire.answer(_show(subscription, await self._standings.read_receiver(subscription)))


def _show(subscription: EventSubscription, standing: ReceiverStanding) -> BusHealthView:
    queue, health = standing.queue, standing.queue.health
    return BusHealthView(
        key=subscription.key,
        state=subscription.state,
        reason=subscription.reason,
        accepted_percent=health.accepted_percent,
        accepted_calls=health.accepted_calls,
        last_calls=len(health.calls),
        points=health.points,
        failures=health.failures,
        failing_since=format_maybe(health.failing_since),
        last_attempt_at=format_maybe(health.last_attempt_at),
        next_probe_at=format_maybe(standing.next_probe),
        queued=queue.queued,
        oldest_at=format_maybe(queue.oldest),
        sent=queue.sent,
        dead=queue.dead,
        lost=queue.lost,
        in_flight=queue.open_deliveries,
    )
