"""`/healthcheck`, as Marathon's clients know it: whether the store and the push database answer."""

import asyncio
from http import HTTPStatus

from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

from services.api import wire
from services.api.identity import Who
from services.api.routes import endpoint
from shared.audience import Audience
from shared.domain.errors import Unavailable
from shared.store import Store

PATIENCE_SECONDS = 5.0


class Health(Struct, frozen=True):
    """Whether all is well."""

    healthy: bool


class HealthResource:
    """The route of the health check."""

    def __init__(self, store: Store, audience: Audience) -> None:
        self._store = store
        self._audience = audience

    def handlers(self) -> list[HTTPRouteHandler]:
        """The only one."""
        answers = {HTTPStatus.OK: Health, HTTPStatus.INTERNAL_SERVER_ERROR: Health}
        return [endpoint("GET", "/healthcheck", self.show, who=Who.EVERYBODY, answers=answers)]

    async def show(self) -> Response[bytes]:
        """Tell whether the API and its databases are well."""
        healthy = await self._answer()
        return wire.answer(Health(healthy), HTTPStatus.OK if healthy else HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _answer(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(self._store.ping(), self._audience.ping())
        except (Unavailable, TimeoutError):
            return False
        return True
