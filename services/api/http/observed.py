"""Every request, logged and measured once, whatever answers it.

Labels are the route's template, the method and the status: never an id, never what a stranger typed.
"""

import re
import time
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import Counter, Histogram

from services.api.http.errors import (
    REQUEST_ID_HEADER,
    bear_request_id,
    current_request_id,
    drop_request_id,
    sole_header,
)
from services.api.http.guards import encode_path
from shared.runtime.metrics import HTTP_REQUEST_SECONDS, HTTP_REQUESTS
from shared.runtime.tracing import TRACEPARENT, serve

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNKNOWN = "unknown"
PATH_CHARACTERS = 256  # of a path in the log
_SECRETS = re.compile("(/(?:recipients|api_tokens|u)/).+", re.DOTALL | re.IGNORECASE)
"""A person's address, and tokens: a reader of the log could act by them."""

NO_ANSWER = 499  # the client left before there was an answer


class Observed:
    """Middleware: comes before everything else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._log = structlog.get_logger(__name__).bind()  # once: it costs a quarter of a line

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        scope["path"] = encode_path(scope["raw_path"])
        token = bear_request_id(scope)
        try:
            await self._observe(scope, receive, send, (REQUEST_ID_HEADER.encode(), current_request_id().encode()))
        finally:
            drop_request_id(token)

    async def _observe(self, scope: Scope, receive: Receive, send: Send, request_id: tuple[bytes, bytes]) -> None:
        began = time.perf_counter()
        status = NO_ANSWER

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                message["headers"] = [*message["headers"], request_id]
            await send(message)

        try:
            with serve(_method(scope), lambda: sole_header(scope, TRACEPARENT)) as span:
                try:
                    await self._app(scope, receive, send_and_note)
                finally:
                    if span.is_recorded:
                        span.rename(f"{_method(scope)} {_route(scope)}")
                        span.set(status=status, **_facts(scope))
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _note(self, scope: Any, status: int, seconds: float) -> None:
        route, method = _route(scope), _method(scope)
        requests, durations = _metrics(route, method, status)
        requests.inc()
        durations.observe(seconds)
        caller = scope["state"].get("caller")
        self._log.info(
            "request answered",
            method=method,
            # Masked with or without a route, whether it was encoded once or twice.
            path=_SECRETS.sub(r"\1***", unquote(unquote(scope["path"])))[:PATH_CHARACTERS],
            route=route,
            status=status,
            milliseconds=round(seconds * 1e3, 1),
            caller=caller.namespace if caller else "",
        )


@lru_cache(maxsize=2_000)
def _metrics(route: str, method: str, status: int) -> tuple[Counter, Histogram]:
    labels = (route, method, str(status))
    return HTTP_REQUESTS.labels(*labels), HTTP_REQUEST_SECONDS.labels(*labels)


def _route(scope: Any) -> str:
    return scope.get("path_template") or UNKNOWN


def _method(scope: Any) -> str:
    return scope["method"] if scope["method"] in METHODS else UNKNOWN


def _facts(scope: Any) -> dict[str, str]:
    """The attributes of the request's span: its route and its app, no text of the caller."""
    app = scope.get("path_params", {}).get("app_id", "")
    return {"route": _route(scope)} | ({"app": str(app)} if app else {})
