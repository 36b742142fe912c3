"""`/healthcheck`, as Marathon's clients know it: whether the store and the push database answer.

Anybody may ask, so one look serves all who ask within a second.
"""

import asyncio
import time
from collections.abc import Callable
from http import HTTPStatus

from litestar import Response
from msgspec import Struct

from services.api.http import wire
from services.api.http.rights import EVERYBODY
from services.api.http.routes import Resource, Route
from shared.audience import Audience
from shared.domain.errors import Unavailable
from shared.store import Store

PATIENCE_SECONDS = 5.0
FRESH_SECONDS = 1.0


class Health(Struct, frozen=True):
    """Whether all is well."""

    healthy: bool


class HealthResource(Resource):
    """The route of the health check."""

    def __init__(self, store: Store, audience: Audience, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._audience = audience
        self._monotonic = monotonic
        self._looking = asyncio.Lock()
        self._healthy = False
        self._looked_at = float("-inf")

    @Route(
        "GET", "/healthcheck", summary="Tell whether the API and its databases are well.",
        who=EVERYBODY, answers={HTTPStatus.OK: Health, HTTPStatus.INTERNAL_SERVER_ERROR: Health},
    )  # fmt: skip
    async def check_health(self) -> Response[bytes]:
        healthy = await self._is_healthy()
        return wire.answer(Health(healthy), HTTPStatus.OK if healthy else HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _is_healthy(self) -> bool:
        async with self._looking:
            if self._monotonic() - self._looked_at >= FRESH_SECONDS:
                self._healthy = await self._look()
                self._looked_at = self._monotonic()
            return self._healthy

    async def _look(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(self._store.ping(), self._audience.ping())
        except (Unavailable, TimeoutError):
            return False
        return True
