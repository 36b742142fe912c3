"""A Routemaster as its published code answers, as far as its root asks: three lists, by basic auth."""

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

ROOT = "root-key-of-the-old-bus"


class Routemaster:
    """What it has. `topics` are names with a publisher's token and a count; `subscribers` are by their tokens. It
    answers `instead`, a status and a body, to everything where that is there."""

    def __init__(self) -> None:
        self.url = ""
        self.tokens: dict[str, str] = {}
        self.topics: dict[str, tuple[str | None, int]] = {}
        self.subscribers: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.instead: tuple[int, bytes] | None = None

    def subscribe(self, token: str, *topics: str, **fields: Any) -> None:
        """What its `POST /subscriber` leaves, with its own defaults."""
        callback = "https://app.example.com/events"
        standard = {"uuid": "me", "callback": callback, "max_events": 100, "timeout": 500, "topics": list(topics)}
        self.subscribers[token] = standard | fields
        for name in topics:
            self.topics.setdefault(name, (None, 0))

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        if self.instead is not None:
            status, body = self.instead
            return web.Response(status=status, body=body, headers={"Location": "https://elsewhere.example.com/"})
        user = _user(request.headers.get("Authorization", ""))
        if user != ROOT and (request.path == "/api_tokens" or user not in self.tokens):
            # As Rack does.
            return web.Response(status=401, content_type="text/plain", headers={"WWW-Authenticate": 'Basic realm=""'})
        match request.path:
            case "/api_tokens" if not self.tokens:
                return web.Response(status=204)
            case "/api_tokens":
                shown: Any = [{"name": name, "token": token} for token, name in self.tokens.items()]
                # It names no type, and so has Sinatra's.
                return web.Response(body=json.dumps(shown).encode(), content_type="text/html", charset="utf-8")
            case "/topics":
                shown = [{"name": name, "publisher": of, "events": n} for name, (of, n) in self.topics.items()]
            case "/subscribers":
                waiting = {"events": {"sent": None, "queued": 3, "oldest": None}}
                shown = [{"subscriber": token} | fields | waiting for token, fields in self.subscribers.items()]
            case _:
                return web.Response(status=404, text="<h1>Not Found</h1>", content_type="text/html")
        return web.json_response(shown)


@asynccontextmanager
async def running(tls: ssl.SSLContext | None = None) -> AsyncIterator[Routemaster]:
    """One that answers as long as this is open."""
    old = Routemaster()
    runner = web.ServerRunner(web.Server(old.answer), shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    old.url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield old
    finally:
        await runner.cleanup()


def _user(header: str) -> str:
    shown = base64.b64decode(header.removeprefix("Basic ")).decode()
    return shown.partition(":")[0] if header.startswith("Basic ") else ""
