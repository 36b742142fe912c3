"""A receiver that is a process of its own (`python -m tests.e2e.drain PORT FILE`), and behaves as Routemaster's drain.

It answers 204 to an array of events that comes by POST to its root, from a user that it knows by basic auth, with a
Content-Type of exactly `application/json`; and 404, 405, 401, 403, 415 or 400 to anything else. Each request is a line
of the file, before it is answered.
"""

import asyncio
import base64
import json
import sys
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

from aiohttp import web

from tests.waiting import SECONDS

UUIDS = {"me", "myself", "i:too"}
NEEDED = ("topic", "type", "url", "t")


def judge(method: str, path: str, headers: dict[str, str], body: bytes) -> int:
    """The status by which a drain answers."""
    if path not in {"", "/"}:
        return 404
    if method != "POST":
        return 405
    if "authorization" not in headers:
        return 401
    shown = base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode()
    if shown.removesuffix(":x") not in UUIDS:
        return 403
    if headers.get("content-type") != "application/json":
        return 415
    return 204 if is_payload(body) else 400


def is_payload(body: bytes) -> bool:
    """Whether it is an array of events."""
    try:
        events = json.loads(body)
    except ValueError:
        return False
    return isinstance(events, list) and all(all(event.get(name) for name in NEEDED) for event in events)


class Drained:
    """What a drain has noted in its file."""

    def __init__(self, file: Path, port: int) -> None:
        self._file = file
        self.url = f"http://127.0.0.1:{port}"

    def requests(self) -> list[dict[str, Any]]:
        """Every request, in its order."""
        return [json.loads(line) for line in self._file.read_text().splitlines()]

    def batches(self, topic: str) -> list[list[dict[str, Any]]]:
        """The events of each request that has some of this topic."""
        return [
            events
            for request in self.requests()
            for events in [json.loads(request["body"])]
            if any(event["topic"] == topic for event in events)
        ]

    def topics(self) -> Iterator[str]:
        """The topic of each event that came."""
        for request in self.requests():
            yield from (event["topic"] for event in json.loads(request["body"]))


@asynccontextmanager
async def draining(folder: Path, port: int) -> Any:
    """A drain that runs as long as this is open."""
    file = folder / "drained.ndjson"
    file.touch()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.e2e.drain", str(port), str(file), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert await asyncio.wait_for(child.stdout.readline(), SECONDS) == b"ready\n"
        yield Drained(file, port)
    finally:
        child.kill()
        await asyncio.wait_for(child.wait(), SECONDS)


async def _serve(port: int, file: TextIO) -> None:
    async def handle(request: web.BaseRequest) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.read()
        status = judge(request.method, request.path, headers, body)
        line = {"at": time.time(), "status": status, "headers": headers, "body": body.decode()}
        file.write(json.dumps(line) + "\n")
        file.flush()
        return web.Response(status=status)

    server = web.ServerRunner(web.Server(handle))
    await server.setup()
    await web.TCPSite(server, "127.0.0.1", port).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    with Path(sys.argv[2]).open("a") as noted:
        asyncio.run(_serve(int(sys.argv[1]), noted))
