"""How much memory the bodies of requests may take together.

A route that reads a body holds all of it until it has answered, and a body may be 32 MiB: a few dozen callers at once
would be more than the process has.
"""

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, ReceiveMessage, Scope, Send

from shared.domain.errors import Unavailable

SMALL_BYTES = 64 * 2**10


class Bodies:
    """Middleware: counts the bodies that routes hold. A caller that brings more than there is room for is answered 503.

    A body takes the room of its declared length when it begins: else several that come at once would take a part each,
    and none would get in. So much of each body is always taken as most bodies have, for they are bounded by the number
    of connections. Routes that pass a body on as it comes (`streams`) hold nothing.
    """

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self._app = app
        self._limit = limit_bytes
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        held = received = 0
        declared = _declared_bytes(scope)

        async def receive_counted() -> ReceiveMessage:
            nonlocal held, received
            message = await receive()
            if message["type"] == "http.request" and not scope["route_handler"].opt.get("streams"):
                received += len(message["body"])
                more = max(received, declared) - held
                if held + more > SMALL_BYTES and self._held + more > self._limit:
                    raise Unavailable("the bodies of other requests take all the room that there is for them")
                held += more
                self._held += more
            return message

        try:
            await self._app(scope, receive_counted, send)
        finally:
            self._held -= held


def _declared_bytes(scope: Scope) -> int:
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(declared) if declared.isdigit() else 0
