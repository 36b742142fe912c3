"""`/healthcheck`, as Marathon's clients know it: whether the store and the push database answer.

Every stranger may ask, so callers share the answer for a second.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from litestar import Response
from msgspec import Struct

from services.api.http import bodies
from services.api.http.identity import PATIENCE_SECONDS
from services.api.http.rights import EVERYBODY
from services.api.http.routes import Resource, Route
from shared.core.errors import Unavailable
from shared.drivers.postgres import Audience
from shared.runtime.cached import Cached
from shared.store import Store

MARATHON_VERSION = "3.1.11"
"""The version of Marathon whose routes these are; its clients read it from a header."""


async def are_passed(*checks: Callable[[], Awaitable[None]]) -> bool:
    """Whether all checks pass. A check fails by `Unavailable`, or after four seconds."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(check() for check in checks))
    except (Unavailable, TimeoutError):
        return False
    return True


class Health(Struct, frozen=True):
    """Whether all is well."""

    healthy: bool


class HealthResource(Resource):
    def __init__(self, store: Store, audience: Audience, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._healthy = Cached(lambda: are_passed(store.ping, audience.ping), monotonic=monotonic)

    @Route(
        "GET", "/healthcheck", summary="Tell whether the API and its databases are well.",
        who=EVERYBODY, answers={HTTPStatus.OK: Health, HTTPStatus.INTERNAL_SERVER_ERROR: Health},
        any_query=True,  # probes add parameters against caches
    )  # fmt: skip
    async def check_health(self) -> Response[bytes]:
        healthy = await self._healthy.get()
        status = HTTPStatus.OK if healthy else HTTPStatus.INTERNAL_SERVER_ERROR
        return bodies.answer(Health(healthy), status, headers={"MARATHON-VERSION": MARATHON_VERSION})
