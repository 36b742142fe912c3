"""`/healthcheck`, as Marathon's clients know it: whether the store and the push database answer.

Anybody may ask, so one look serves all who ask within a second.
"""

import time
from collections.abc import Callable
from http import HTTPStatus

from litestar import Response
from msgspec import Struct

from services.api.http import wire
from services.api.http.looks import SharedLook
from services.api.http.rights import EVERYBODY
from services.api.http.routes import Resource, Route
from shared.audience import Audience
from shared.store import Store

MARATHON_VERSION = "3.1.11"
"""The version of Marathon whose routes these are; its clients read it from a header."""


class Health(Struct, frozen=True):
    """Whether all is well."""

    healthy: bool


class HealthResource(Resource):
    """The route of the health check."""

    def __init__(self, store: Store, audience: Audience, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._audience = audience
        self._look = SharedLook([self._ping_store, self._ping_audience], monotonic=monotonic)

    @Route(
        "GET", "/healthcheck", summary="Tell whether the API and its databases are well.",
        who=EVERYBODY, answers={HTTPStatus.OK: Health, HTTPStatus.INTERNAL_SERVER_ERROR: Health},
        any_query=True,  # probes add parameters against caches
    )  # fmt: skip
    async def check_health(self) -> Response[bytes]:
        healthy = await self._look.is_well()
        status = HTTPStatus.OK if healthy else HTTPStatus.INTERNAL_SERVER_ERROR
        return wire.answer(Health(healthy), status, headers={"MARATHON-VERSION": MARATHON_VERSION})

    async def _ping_store(self) -> None:
        await self._store.ping()

    async def _ping_audience(self) -> None:
        await self._audience.ping()
