"""How long a caller waits for a page of schedules, wherever in the list it lies."""

import asyncio
import base64
import http.client
import json
import random
from collections.abc import Callable
from http import HTTPStatus
from statistics import quantiles
from time import perf_counter
from urllib.parse import urlencode

from msgspec import Struct

from services.embedded.processes import free_port
from shared.clock.rules.schedules import schedule_id
from tests.bench.place import ADMIN
from tests.bench.report import Figure, Target, Wrong
from tests.bench.schedules import NAMESPACE, key
from tests.e2e.house import House

_PAGES, _FEWEST = 100, 5
_LONGEST_SECONDS = 20.0
_LIMIT = 100
_PAUSED = 500
_PAGE_MS = 50


class Page(Struct, frozen=True):
    """A page: its query, and the first key that must be on it."""

    query: dict[str, str]
    first: str

    def having(self, **query: str) -> "Page":
        """The same with more in its query."""
        return Page(self.query | query, self.first)


async def figures(house: House, prefix: str, schedules: int) -> list[Figure]:
    """The median and the 99th of 100 of each way of asking, by an API process of its own, for the schedules
    `key(prefix, 0)` to `key(prefix, schedules - 1)`.

    Some with odd numbers are paused first, in equal distances; whoever asks for active ones begins at an even one.
    """
    paused = range(1, schedules, max(schedules // _PAUSED // 2, 1) * 2)
    for n in paused:
        await house.schedules.pause(schedule_id(NAMESPACE, key(prefix, n)))
    port = free_port()
    api = await house.start("api", CARILLON_API_PORT=str(port))
    found = await asyncio.to_thread(Reader(port, prefix, schedules).figures, len(paused))
    await api.end()
    return found


class Reader:
    """Asks for pages over one connection that stays open."""

    def __init__(self, port: int, prefix: str, schedules: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        self._prefix = prefix
        self._given_up = 0
        self._odd = range(1, schedules - 1_000, 2)

    def figures(self, paused: int) -> list[Figure]:
        """All ways of asking."""
        few, head = {"limit": str(_LIMIT)}, key(self._prefix, 0)
        ways: dict[str, Callable[[int], Page]] = {
            "the first": lambda _: Page(few, head),
            "the first 1,000": lambda _: Page({}, head),
            "anywhere": lambda n: self._behind(n).having(**few),
            "1,000 anywhere": self._behind,
            "anywhere, active": lambda n: self._behind(n).having(**few, state="active"),
            "a prefix of 1,000": lambda n: self._below(n).having(**few),
            "a prefix of 1,000, active": lambda n: self._below(n).having(**few, state="active"),
            f"paused, one of {paused}": lambda _: Page({**few, "state": "paused"}, key(self._prefix, 1)),
        }
        return [figure for what, way in ways.items() for figure in self._timed(what, way)]

    def _behind(self, n: int) -> Page:
        cursor = base64.urlsafe_b64encode(json.dumps(key(self._prefix, n)).encode()).decode().rstrip("=")
        return Page({"cursor": cursor}, key(self._prefix, n + 1))

    def _below(self, n: int) -> Page:
        prefix = key(self._prefix, n)[:-3]
        return Page({"prefix": prefix}, f"{prefix}000")

    def _timed(self, what: str, way: Callable[[int], Page]) -> list[Figure]:
        chance = random.Random(what)
        took: list[float] = []
        until = perf_counter() + _LONGEST_SECONDS
        while len(took) < _PAGES and (len(took) < _FEWEST or perf_counter() < until):
            took.append(self._took(way(chance.choice(self._odd))))
        percent = quantiles(took, n=100, method="inclusive")
        bound = Target(_PAGE_MS, at_most=True)
        given_up, self._given_up = self._given_up, 0
        return [
            Figure(f"page: {what}, median of {len(took)}", [percent[49]], "ms", bound),
            Figure(f"page: {what}, 99th of 100", [percent[98]], "ms", bound),
            *([Figure(f"page: {what}, given up (503)", [given_up])] if given_up else []),
        ]

    def _took(self, page: Page) -> float:
        began = perf_counter()
        self._connection.request("GET", f"/schedules?{urlencode(page.query)}", headers={"x-forwarded-email": ADMIN})
        answer = self._connection.getresponse()
        content = answer.read()
        took = (perf_counter() - began) * 1000
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            # The database did not answer for as long as the API waits for it: slow, and not wrong.
            self._given_up += 1
            return took
        keys = [each["key"] for each in json.loads(content)] if answer.status == 200 else []
        if keys[:1] != [page.first] or len(keys) != int(page.query.get("limit", "1000")) or sorted(keys) != keys:
            raise Wrong(f"{page}: {answer.status}, {len(keys)} keys from {keys[:1]}")
        return took
