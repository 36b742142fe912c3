"""`POST /bus/subscriptions/{key}/test`: whether a subscription's receiver answers."""

from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath

from services.api.accounts.namespaces import NAMESPACE, namespace_of
from services.api.bus.native.attempt_view import BusAttemptView, attempt_view
from services.api.bus.native.subscriptions import BUS_SUBSCRIPTION, SEGMENTS
from services.api.http import wire
from services.api.http.rights import OPERATE_NAMESPACE
from services.api.http.routes import Resource, Route
from shared.flow.bus.trials import ReceiverTrials


class BusTrialsResource(Resource):
    """The route that tries a receiver."""

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
        return wire.answer(attempt_view(attempt, personal=True))
