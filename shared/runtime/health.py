"""The health of a process, and its pages `/livez`, `/readyz` and `/metrics`: a small ASGI application, no framework.

- `/livez` fails when a component has died: only a restart helps. (A blocked event loop does not answer at all.)
- `/readyz` fails while the process starts or drains, or when the check of an indispensable server fails or is late. The
  body names each failing check, including those of servers that only some work needs. One look serves all requests
  within a second.

GET returns the page, OPTIONS its methods. Another method is a 405, another path a 404. Extra slashes do no harm.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from prometheus_client import CONTENT_TYPE_LATEST

from shared.runtime import metrics
from shared.runtime.cached import Cached
from shared.runtime.http_protocol import Limits
from shared.runtime.private import without_secrets
from shared.runtime.serving import HttpServer
from shared.runtime.settings import HealthSettings
from shared.runtime.tls import server_context

_JSON = b"application/json"
_METHODS = b"GET, OPTIONS"
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class PlainPage(Struct, frozen=True):
    """An answer. `allow` lists the methods of the path in answers to OPTIONS and in 405."""

    status: HTTPStatus
    body: bytes = b""
    content_type: bytes = b""
    allow: bytes = b""

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of the page. Browsers must not guess the type of its body."""
        fields = [
            (b"content-type", self.content_type),
            (b"allow", self.allow),
            (b"content-length", b"" if self.status == HTTPStatus.NO_CONTENT else b"%d" % len(self.body)),
            (b"x-content-type-options", b"nosniff"),
        ]
        return [(name, value) for name, value in fields if value]


Show = Callable[[], Awaitable[PlainPage]]


class Pages:
    """The application: a function for the page at each path."""

    def __init__(self, pages: Mapping[str, Show]) -> None:
        self._pages = dict(pages)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        page = await self._answer(scope["method"], scope["path"])
        await send({"type": "http.response.start", "status": page.status.value, "headers": page.headers()})
        await send({"type": "http.response.body", "body": page.body})

    async def _answer(self, method: str, path: str) -> PlainPage:
        show = self._pages.get("/" + "/".join(filter(None, path.split("/"))))
        match method:
            case _ if show is None:
                return _refuse(HTTPStatus.NOT_FOUND, allow=b"")
            case "GET":
                return await show()
            case "OPTIONS":
                return PlainPage(HTTPStatus.NO_CONTENT, allow=_METHODS)
            case _:
                return _refuse(HTTPStatus.METHOD_NOT_ALLOWED, allow=_METHODS)


def json_page(status: HTTPStatus, content: Mapping[str, object]) -> PlainPage:
    """A page of JSON in ASCII: a server's text may hold half a surrogate pair, which UTF-8 cannot encode."""
    return PlainPage(status, json.dumps(content).encode(), _JSON)


def _refuse(status: HTTPStatus, allow: bytes) -> PlainPage:
    return replace(json_page(status, {"status_code": status.value, "detail": status.phrase}), allow=allow)


Check = Callable[[], Awaitable[None]]


class Phase(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


class ProcessHealth:
    def __init__(
        self,
        *,
        deadline_seconds: float = 2.0,
        fresh_seconds: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.phase = Phase.STARTING
        self.dead: dict[str, str] = {}
        self._checks: dict[str, Check] = {}
        self._needed: set[str] = set()
        self._running: dict[str, asyncio.Future[None]] = {}
        self._deadline = deadline_seconds
        self._failing = Cached(self._look, seconds=fresh_seconds, monotonic=monotonic)

    def add(self, name: str, check: Check, *, needed: bool = True) -> None:
        """Add a check that raises on failure, such as a server's `ping`. A failing `needed` check makes the
        process not ready. A check that one service needs is needed by the process."""
        self._checks[name] = check
        if needed:
            self._needed.add(name)

    def mark_dead(self, name: str, why: str) -> None:
        """Note that a component has ended for good: the process is no longer alive."""
        self.dead[name] = without_secrets(why)

    def is_ready(self, failing: Collection[str]) -> bool:
        return self.phase is Phase.SERVING and self._needed.isdisjoint(failing)

    async def find_failing(self) -> dict[str, str]:
        """The failing checks and their reasons, at most `fresh_seconds` old."""
        return await self._failing.get()

    async def _look(self) -> dict[str, str]:
        for name, check in self._checks.items():
            # A check that still hangs from the last look is not started again: they would pile up.
            if name not in self._running or self._running[name].done():
                self._running[name] = asyncio.ensure_future(check())
        if self._running:
            await asyncio.wait(self._running.values(), timeout=self._deadline)
        reasons = {name: self._reason(task) for name, task in self._running.items()}
        return {name: reason for name, reason in reasons.items() if reason}

    def _reason(self, task: "asyncio.Future[None]") -> str:
        if not task.done():
            task.cancel()
            return f"no answer within {self._deadline:g} s"
        if task.cancelled():
            return "cancelled"
        error = task.exception()
        return "" if error is None else without_secrets(f"{type(error).__name__}: {error}")


def pages(health: ProcessHealth) -> Pages:
    async def show_livez() -> PlainPage:
        return _tell(not health.dead, {"alive": not health.dead, "dead": health.dead})

    async def show_readyz() -> PlainPage:
        failing = await health.find_failing()
        ready = health.is_ready(failing)
        return _tell(ready, {"ready": ready, "phase": health.phase, "failing": failing})

    async def show_metrics() -> PlainPage:
        return PlainPage(HTTPStatus.OK, metrics.page(), CONTENT_TYPE_LATEST.encode())

    return Pages({"/livez": show_livez, "/readyz": show_readyz, "/metrics": show_metrics})


def _tell(good: bool, content: dict[str, object]) -> PlainPage:
    return json_page(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, content)


def server(health: ProcessHealth, settings: HealthSettings) -> HttpServer:
    """The component that serves the pages; it must be the first in the list of a process."""
    limits = Limits(connections=settings.max_connections)
    certificate = server_context(settings.certificate_file, settings.key_file, section="health")
    app, host, port = pages(health), settings.host, settings.port
    return HttpServer("health", app, host=host, port=port, limits=limits, certificate=certificate, lifespan="off")
