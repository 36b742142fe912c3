"""An API process, and somebody who asks it over one connection."""

import asyncio
import gzip
import http
import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from msgspec import Struct

from services.embedded.processes import free_port
from tests.bench.place import ADMIN
from tests.bench.report import Wrong
from tests.e2e.house import House

_HEADERS = {"x-forwarded-email": ADMIN, "content-type": "application/json"}


class Away(Exception):
    """The database did not answer the API in time: it took so many ms to say so."""

    def __init__(self, took: float) -> None:
        super().__init__(took)
        self.took = took


class Asker:
    """Asks an API process over one connection that stays open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    async def load(self, path: str, **headers: str) -> "Loaded":
        """The answer as a browser gets it."""
        return await asyncio.to_thread(self._load, path, headers)

    async def get(self, path: str) -> float:
        """How many ms the answer took."""
        return (await asyncio.to_thread(self._ask, "GET", path, None))[0]

    async def read(self, path: str) -> Any:
        """The answer."""
        return (await asyncio.to_thread(self._ask, "GET", path, None))[1]

    async def post(self, path: str, body: Any) -> Any:
        """The answer."""
        return (await asyncio.to_thread(self._ask, "POST", path, json.dumps(body)))[1]

    def _load(self, path: str, headers: dict[str, str]) -> "Loaded":
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        began = perf_counter()
        self._connection.request("GET", path, headers=_HEADERS | {"accept-encoding": "gzip"} | named)
        answer = self._connection.getresponse()
        content = answer.read()
        took = (perf_counter() - began) * 1_000
        is_packed = answer.headers.get("content-encoding") == "gzip"
        return Loaded(took, answer.status, len(content), gzip.decompress(content) if is_packed else content)

    def _ask(self, method: str, path: str, body: str | None) -> tuple[float, Any]:
        began = perf_counter()
        self._connection.request(method, path, body=body, headers=_HEADERS)
        answer = self._connection.getresponse()
        content = answer.read()
        took = (perf_counter() - began) * 1_000
        if answer.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            raise Away(took)
        if not 200 <= answer.status < 300:
            raise Wrong(f"{method} {path}: {answer.status} {content[:300]!r}")
        return took, json.loads(content)


class Loaded(Struct, frozen=True):
    """An answer: how many ms it took, and how many bytes came over the wire for this content."""

    took: float
    status: int
    size: int
    content: bytes


@asynccontextmanager
async def open_api(house: House) -> AsyncIterator[Asker]:
    """A new API process, and who asks it."""
    port = free_port()
    api = await house.start("api", CARILLON_API_PORT=str(port), CARILLON_API_REQUESTS_PER_SECOND="10000")
    yield Asker(port)
    await api.end()
