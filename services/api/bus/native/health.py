"""The state of a receiver and its backlog, a test of it, and `GET /bus/pressure`, which says whether the bus needs more
workers or fan-outs.
"""

from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.accounts.apps import NAMESPACE, namespace_of
from services.api.bus.native.deliveries import BusAttemptView, attempt_view
from services.api.bus.native.subscriptions import BUS_SUBSCRIPTION, SEGMENTS
from services.api.http import bodies
from services.api.http.bodies import Timestamp
from services.api.http.rights import KNOWN, OPERATE_NAMESPACE, VIEW_NAMESPACE
from services.api.http.routes import Resource, Route
from shared.bus.receivers import ReceiverTrials
from shared.bus.rules.subscriptions import EventSubscription, SubscriptionStatus
from shared.bus.standing import BusPressure, QueueStandings, ReceiverStanding
from shared.bus.subscriptions import Subscribing
from shared.core.instants import format_maybe


class BusHealthView(Struct, frozen=True, kw_only=True):
    """The health of a receiver. It accepted `accepted_calls` of its `last_calls`, which are 20 at most;
    `accepted_percent` is their share, 100 before the first. `points`, from 0 to 100, and the `failures` in a row say
    how long Carillon waits between two calls: the next one is not before `next_probe_at`, `null` if there is no pause.

    The following fields count events: `queued` wait, the first of them since `oldest_at`; `sent` were taken; `dead` are
    dead letters that were not retried; `lost` came into no delivery. `in_flight` deliveries with some of the
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
    def __init__(self, subscribing: Subscribing, standings: QueueStandings) -> None:
        self._subscribing = subscribing
        self._standings = standings

    @Route(
        "GET", BUS_SUBSCRIPTION + "/health", summary="Show the health of a subscription's receiver, and its backlog.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: BusHealthView}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(NAMESPACE,), segments=SEGMENTS,
    )  # fmt: skip
    async def get_bus_subscription_health(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        subscription = await self._subscribing.get(namespace_of(request), key)
        return bodies.answer(_show(subscription, await self._standings.read_receiver(subscription)))


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


class BusPressureView(Struct, frozen=True):
    """The load of all subscriptions, at most a second old: `due` batches, `queued` events, the age of the oldest
    of them in `oldest_seconds`, and `log_lag` records of the log that are in no queue yet."""

    due: int
    queued: int
    oldest_seconds: float
    log_lag: int


class BusPressureResource(Resource):
    def __init__(self, pressure: BusPressure) -> None:
        self._pressure = pressure

    @Route(
        "GET", "/bus/pressure", summary="Tell how much waits, for KEDA or an HPA.",
        who=KNOWN, answers={HTTPStatus.OK: BusPressureView},
    )  # fmt: skip
    async def tell_pressure(self) -> Response[bytes]:
        told = await self._pressure.read()
        return bodies.answer(BusPressureView(told.due, told.queued, told.oldest_seconds, told.log_lag))


class BusTrialsResource(Resource):
    def __init__(self, trials: ReceiverTrials) -> None:
        self._trials = trials

    @Route(
        "POST", BUS_SUBSCRIPTION + "/test",
        summary="Send one made-up event to a subscription's receiver now, signed as deliveries are, and tell what came "
                "of it. Nothing of the subscription changes.",
        act="subscription.test", who=OPERATE_NAMESPACE, answers={HTTPStatus.OK: BusAttemptView},
        problems=(HTTPStatus.NOT_FOUND,), parameters=(NAMESPACE,), segments=SEGMENTS,
    )  # fmt: skip
    async def try_bus_receiver(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        attempt = await self._trials.try_receiver(namespace_of(request), key)
        return bodies.answer(attempt_view(attempt, personal=True))
