"""The pages for orchestrators, on a separate port: /livez, /readyz and /metrics.

- `/livez` fails when a component has died: only a restart helps. (A blocked event loop does not answer at all.)
- `/readyz` fails while the process starts or drains, or when the check of an indispensable server fails or is late. The
  body names each failing check, including those of servers that only some work needs. One look serves all requests
  within a second.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from enum import StrEnum
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST

from shared.runtime import metrics
from shared.runtime.http_protocol import Limits
from shared.runtime.masking import without_secrets
from shared.runtime.pages import Pages, PlainPage, json_page
from shared.runtime.serving import HttpServer
from shared.runtime.settings import HealthSettings
from shared.runtime.tls import server_context

Check = Callable[[], Awaitable[None]]


class Phase(StrEnum):
    """The phases of a process's life."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


class ProcessHealth:
    """The health of this process, shared by all its services."""

    def __init__(
        self,
        *,
        deadline_seconds: float = 2.0,
        fresh_seconds: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.phase = Phase.STARTING
        self._dead: dict[str, str] = {}
        self._checks: dict[str, Check] = {}
        self._needed: set[str] = set()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._failing: dict[str, str] = {}
        self._deadline = deadline_seconds
        self._fresh = fresh_seconds
        self._monotonic = monotonic
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()

    def add(self, name: str, check: Check, *, needed: bool = True) -> None:
        """Add a check that raises on failure, such as a capability's `ping`. A failing `needed` check makes the
        process not ready. A check that one service needs is needed by the process."""
        self._checks[name] = check
        if needed:
            self._needed.add(name)

    def mark_dead(self, name: str, why: str) -> None:
        """Note that a component has ended for good: the process is no longer alive."""
        self._dead[name] = without_secrets(why)

    @property
    def dead(self) -> dict[str, str]:
        return dict(self._dead)

    def is_ready(self, failing: Collection[str]) -> bool:
        return self.phase is Phase.SERVING and self._needed.isdisjoint(failing)

    async def find_failing(self) -> dict[str, str]:
        """The failing checks and their reasons, at most `fresh_seconds` old."""
        async with self._looking:
            if self._monotonic() - self._looked_at >= self._fresh:
                self._failing = await self._look()
                self._looked_at = self._monotonic()
            return self._failing

    async def _look(self) -> dict[str, str]:
        for name, check in self._checks.items():
            # A check that still hangs from the last look is not started again: they would pile up.
            if name not in self._running or self._running[name].done():
                self._running[name] = asyncio.create_task(_ask(check), name=f"check {name}")
        if self._running:
            await asyncio.wait(self._running.values(), timeout=self._deadline)
        reasons = {name: self._reason(task) for name, task in self._running.items()}
        return {name: reason for name, reason in reasons.items() if reason}

    def _reason(self, task: "asyncio.Task[None]") -> str:
        if not task.done():
            task.cancel()
            return f"no answer within {self._deadline:g} s"
        if task.cancelled():
            return "cancelled"
        error = task.exception()
        return "" if error is None else without_secrets(f"{type(error).__name__}: {error}")


async def _ask(check: Check) -> None:
    await check()


def pages(health: ProcessHealth) -> Pages:
    """The three pages as an application."""

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
