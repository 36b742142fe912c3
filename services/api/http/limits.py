"""Limits of the requests of one namespace to a process, so that it leaves others their part.

Requests are counted behind the look-up of the caller: an unknown one is refused before, and cannot use up anything.
Moves that stop something are never refused: a caller that has done too much must be able to undo it.
"""

import time
from collections.abc import Callable
from math import ceil

from litestar.types import ASGIApp, Receive, Scope, Send

from services.api.http import errors
from services.api.http.paths import without_slash
from shared.domain.accounts.callers import Caller
from shared.domain.errors import TooMany
from shared.domain.rates import Rate
from shared.runtime.settings import ApiSettings

_BURST_SECONDS = 2
_STOPS = ("/pause", "/stop")
_SLASHES_OF_A_THING = 2  # as in /schedules/{key}, and one more below /bus; a move of it has one more
_NAMESPACES = 10_000


class Limited:
    """Middleware behind `IdentifyCaller`: refuses the requests of a namespace that sends too many."""

    def __init__(self, app: ASGIApp, settings: ApiSettings, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._per_second = settings.requests_per_second
        self._rate = Rate(self._per_second, burst=_BURST_SECONDS * self._per_second, keys=_NAMESPACES)
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = scope["state"].get("caller")
        if isinstance(caller, Caller) and not _stops_something(scope):
            wait = self._rate.wait(caller.namespace, self._monotonic())
            if wait > 0:
                reason = f"more than {self._per_second} requests a second of {caller.namespace}"
                await errors.send(TooMany(reason, retry_after_seconds=ceil(wait)), send)
                return
        await self._app(scope, receive, send)


def _stops_something(scope: Scope) -> bool:
    """By method and path, because the route is not known yet. A schedule's key may be `pause` or `stop`."""
    method, path = scope.get("method"), without_slash(scope["path"])
    if method == "DELETE":
        return True
    slashes = _SLASHES_OF_A_THING + path.startswith("/bus/")
    return method in {"POST", "PUT"} and path.endswith(_STOPS) and path.count("/") > slashes
