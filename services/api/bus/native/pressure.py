"""`GET /bus/pressure`: whether the bus needs more workers or fan-outs, for who scales them."""

from http import HTTPStatus

from litestar import Response
from msgspec import Struct

from services.api.http import wire
from services.api.http.rights import KNOWN
from services.api.http.routes import Resource, Route
from shared.flow.bus.pressure import BusPressure


class BusPressureView(Struct, frozen=True):
    """The load of all subscriptions, at most a second ago: so many batches are `due`, so many events are `queued`, the
    oldest of them for `oldest_seconds`, and so many records of the log are in no queue yet."""

    due: int
    queued: int
    oldest_seconds: float
    log_lag: int


class BusPressureResource(Resource):
    """The route that tells the pressure."""

    def __init__(self, pressure: BusPressure) -> None:
        self._pressure = pressure

    @Route(
        "GET", "/bus/pressure", summary="Tell how much waits, for KEDA or an HPA.",
        who=KNOWN, answers={HTTPStatus.OK: BusPressureView},
    )  # fmt: skip
    async def tell_pressure(self) -> Response[bytes]:
        told = await self._pressure.read()
        return wire.answer(BusPressureView(told.due, told.queued, told.oldest_seconds, told.log_lag))
