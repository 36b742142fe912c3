"""An ASGI application behind uvicorn, as a component: leaves the process's signals alone and takes a free port for port
0."""

import asyncio
import contextlib
import functools
import resource
import socket
import ssl
from collections.abc import Generator
from typing import Any

import structlog
import uvicorn

from shared.runtime.http_protocol import BoundedHttp, Limits, OpenConnections

_LIMITS = Limits()
_TICK_SECONDS = 1.0

log = structlog.get_logger(__name__)


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers, without `sys.exit`, and without checking ten times a second whether to end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()
        self.exiting = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            raise RuntimeError("the application did not start") from None
        self.accepting.set()

    async def main_loop(self) -> None:
        await self.exiting.wait()


class HttpServer:
    """Serves `app` on `host` and `port`; after `start`, `port` is the real one.

    `stop` refuses new connections at once and lets the requests in hand be answered. With a `certificate` it uses
    HTTPS.
    """

    def __init__(
        self,
        name: str,
        app: Any,
        *,
        host: str,
        port: int,
        limits: Limits = _LIMITS,
        certificate: ssl.SSLContext | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.scheme = "http" if certificate is None else "https"
        self._connections = OpenConnections(name, limits)
        # The access log would repeat the metrics line by line; `logs` has set up the handlers.
        config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, ws="none", **options)
        if certificate is not None:
            config.ssl_context_factory = lambda _config, _default: certificate
        config.http = functools.partial(BoundedHttp, self._connections)  # type: ignore[assignment] # called like a class
        self._server = _Uvicorn(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.create_server((self.host, self.port), family=family, backlog=2048)
        self.port = listener.getsockname()[1]
        self._task = asyncio.create_task(self._serve(listener), name=self.name)
        accepting = asyncio.create_task(self._server.accepting.wait())
        try:
            await asyncio.wait({self._task, accepting}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        finally:
            accepting.cancel()
            if not self._server.accepting.is_set():
                listener.close()
        if self._task.done():
            self._task.result()
        log.info("listening", server=self.name, host=self.host, port=self.port)

    async def stop(self) -> None:
        self._server.exiting.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait(self) -> None:
        if self._task is not None:
            await asyncio.wait({self._task})
            self._task.result()

    async def _serve(self, listener: socket.socket) -> None:
        ticking = asyncio.create_task(self._tick(), name=f"{self.name} ticking")
        try:
            await self._server.serve(sockets=[listener])
        finally:
            ticking.cancel()

    async def _tick(self) -> None:
        """Do the work that is due every second, also while the server drains."""
        loop = asyncio.get_running_loop()
        while True:
            await self._server.on_tick(0)  # uvicorn's own work: the Date header
            self._connections.end_overdue(loop.time())
            await asyncio.sleep(_TICK_SECONDS)


def affordable_connections(wanted: int) -> int:
    """The wanted number, but at most half of the files that this process may open: the other half is for everything
    else."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else min(wanted, files // 2)
