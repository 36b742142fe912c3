"""An HTTP client without a wire: it calls the ASGI application as a server would, so that a test chooses the peer's
address and every byte of the body."""

import asyncio
import base64
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from litestar import Litestar

ADMIN = "admin@example.com"
PROXY = "127.0.0.1"


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    app: Litestar
    headers: dict[str, str] = field(default_factory=dict)
    peer: str | None = PROXY

    def someone(self, email: str) -> "Client":
        return Client(self.app, {"x-forwarded-email": email}, self.peer)

    def service(self, token: str) -> "Client":
        return Client(self.app, {"authorization": f"Bearer {token}"}, "203.0.113.9")

    def client(self, token: str) -> "Client":
        """Who shows a token by basic auth, as Routemaster's clients do."""
        shown = base64.b64encode(f"{token}:x".encode()).decode()
        return Client(self.app, {"authorization": f"Basic {shown}"}, "203.0.113.9")

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.send("GET", path, headers=headers)

    async def download(self, path: str, accept: str) -> Reply:
        """All of a stream."""
        pairs = [(name.encode(), value.encode()) for name, value in (self.headers | {"accept": accept}).items()]
        return await self.exchange("GET", path, b"", pairs, stays=True)

    async def post(self, path: str, body: object = None, **headers: str) -> Reply:
        return await self.send("POST", path, body, headers=headers)

    async def put(self, path: str, body: object = None) -> Reply:
        return await self.send("PUT", path, body)

    async def delete(self, path: str) -> Reply:
        return await self.send("DELETE", path)

    async def send(
        self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None
    ) -> Reply:
        """`body` is bytes as they are, or a value to be sent as JSON."""
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in (self.headers | named).items()]
        return await self.exchange(method, path, content, pairs)

    async def exchange(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: list[tuple[bytes, bytes]],
        *,
        leaves: bool = False,
        stays: bool = False,
        host: str | None = "localhost",
    ) -> Reply:
        """`leaves`: the client hangs up before the end of the body. `stays`: it waits for the end of the answer, as a
        stream is only written for those who do. `host`: `None` leaves that header out."""
        named = [] if host is None else [(b"host", host.encode())]
        url = urlsplit(path)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(url.path),
            "raw_path": url.path.encode(),
            "query_string": url.query.encode(),
            "root_path": "",
            "headers": [*named, (b"content-length", str(len(body)).encode()), *headers],
            "client": (self.peer, 50_000) if self.peer is not None else None,
            "server": ("127.0.0.1", 8080),
        }
        incoming = [{"type": "http.request", "body": body, "more_body": leaves}]
        outgoing: list[Any] = []
        ended = asyncio.Event()

        async def receive() -> Any:
            if stays and not incoming:
                await ended.wait()
            return incoming.pop() if incoming else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            outgoing.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                ended.set()

        await self.app(scope, receive, send)  # type: ignore[arg-type]
        start = outgoing[0]
        headers_back = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        return Reply(start["status"], headers_back, b"".join(part.get("body", b"") for part in outgoing[1:]))
