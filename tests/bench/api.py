"""A client of the HTTP API over one connection that stays open, as a service's client has."""

import asyncio
import http.client
import json
from time import perf_counter, time
from typing import Any

from msgspec import Struct

from services.embedded.processes import free_port
from tests.bench.place import ADMIN
from tests.bench.report import Wrong
from tests.e2e.house import House

_HEADERS = {"x-forwarded-email": ADMIN, "content-type": "application/json"}


class Answered(Struct, frozen=True):
    """An answer, how long it took in seconds, and when the request began and the answer was there (epoch, ms)."""

    body: Any
    seconds: float
    began: float
    ended: float


class Api:
    """The routes of one house's app."""

    def __init__(self, port: int, house: House) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._app = f"/apps/{house.app_id}"

    async def post_job(self, **fields: Any) -> Answered:
        """Make a job."""
        body = {"service": "apns", "context": {"who": "Ana"}, **fields}
        return await self._ask("POST", "/jobs?template=like", body, 201)

    async def move(self, job_id: str, verb: str) -> Answered:
        """Pause, resume or stop a job."""
        return await self._ask("PUT", f"/jobs/{job_id}/{verb}", None, 200)

    async def _ask(self, method: str, path: str, body: Any, expected: int) -> Answered:
        return await asyncio.to_thread(self._answered, method, path, body, expected)

    def _answered(self, method: str, path: str, body: Any, expected: int) -> Answered:
        content = None if body is None else json.dumps(body).encode()
        began, at = perf_counter(), time()
        self._connection.request(method, self._app + path, body=content, headers=_HEADERS)
        answer = self._connection.getresponse()
        said = answer.read()
        seconds = perf_counter() - began
        if answer.status != expected:
            raise Wrong(f"{method} {path}: {answer.status} {said[:300]!r}")
        return Answered(json.loads(said), seconds, at * 1000, (at + seconds) * 1000)


async def started(house: House) -> Api:
    """The API of a house, in a process that has just started."""
    port = free_port()
    await house.start("api", CARILLON_API_PORT=str(port))
    return Api(port, house)
