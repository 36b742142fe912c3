"""One request, however hostile, never keeps the event loop from everybody else for long.

Measured is the CPU time of the loop's thread between two of its turns. What else the machine does can only add to it,
as two threads share a core: of several tries the least counts.
"""

import asyncio
import gc
import json
import time
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest

from shared.runtime import loops
from tests.security.tolls import WIDE
from tests.services.api.client import Reply
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRIES, ITEMS, FEW = 3, 10_000, 1_000
CALLBACK = {"type": "http", "data": {"url": "https://example.com/", "payload": None}}


async def longest_turn(house: House, path: str, body: bytes) -> tuple[float, Reply]:
    """The longest stretch while this is POSTed, and its answer."""
    request = asyncio.create_task(house.admin.post(path, body))
    longest, since = 0.0, time.thread_time()
    while not request.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, since = max(longest, now - since), now
    return longest, request.result()


@pytest.fixture(autouse=True)
def _settled() -> Iterator[None]:
    """The collector leaves alone what is there already, as in every process of ours: a test run has far more of it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def crons(line: Callable[[int], str], count: int = ITEMS) -> bytes:
    items = [{"key": f"k{number}", "cron": line(number), "callback": CALLBACK} for number in range(count)]
    return json.dumps(items).encode()


def instants(schedules: int, each: int) -> bytes:
    times = [f"2199-01-01T00:00:00.{number:03}Z" for number in range(1_000)]
    times = [f"21{year:02}{text[4:]}" for year in range(90, 90 + each // 1_000) for text in times]
    items = [{"key": f"i{number}", "schedules": times, "callback": CALLBACK} for number in range(schedules)]
    return json.dumps(items).encode()


def nested_keys() -> bytes:
    value: Any = [0] * 300_000
    for _ in range(6):
        value = {"k" * 1_000: value}
    return json.dumps({"context": value}, separators=(",", ":")).encode()


REQUESTS: dict[str, tuple[str, bytes, int]] = {
    "lines that never fire": ("/schedules/bulk", crons(lambda n: f"{n % 60} {n // 60 % 24} */31 */{n % 7 + 1} 1#5"),
                              200),
    "one line that never fires": ("/schedules/bulk", crons(lambda _: "0 0 */31 * 1#5"), 200),
    "lines that are none": ("/schedules/bulk", crons(lambda n: "1," * 90 + f" {n}"), 200),
    "items that are none": ("/schedules/bulk", b"[" + b"0," * (ITEMS - 1) + b"0]", 200),
    "very many instants": ("/schedules/bulk", instants(4, 10_000), 200),
    "nested keys": ("/apps/{app}/jobs?template=like", nested_keys(), 422),
    "numbers": ("/apps/{app}/jobs?template=like", b'{"context":{"a":[' + b"0," * 500_000 + b"0]}}", 422),
    "empty objects": ("/apps/{app}/jobs?template=like", b'{"context":{"a":[' + b"{}," * 340_000 + b"0]}}", 422),
    "braces": ("/apps/{app}/templates", b'{"name":"z","locale":"en","body":{"a":"' + b"{" * 65_536 + b'"}}', 422),
    "tags": ("/apps/{app}/templates", json.dumps({"name": "z", "locale": "en", "body": {
        f"a{n}": "{{a}}" * 13_000 for n in range(15)}, "defaults": {"a": "x" * 60_000}}).encode(), 422),
}  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(crons(lambda _: "0 0 */31 * 1#5", FEW), id="a line that never fires"),
        pytest.param(crons(lambda n: "1," * 90 + f" {n}", FEW), id="lines that are none", marks=pytest.mark.slow),
        pytest.param(b"[" + b"0," * FEW + b"0]", id="items that are none", marks=pytest.mark.slow),
    ],
)
async def test_a_large_list_is_read_in_turns(house: House, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    """Where each turn is as short as it can be, the loop turns once for each item at least."""
    monkeypatch.setattr(loops, "TURN_SECONDS", 0.0)
    request = asyncio.create_task(house.admin.post("/schedules/bulk", body))
    count = 0
    while not request.done():
        await asyncio.sleep(0)
        count += 1
    assert request.result().status == 200, request.result().body[:300]
    assert count > FEW


@pytest.mark.alone
@pytest.mark.parametrize("name", REQUESTS)
async def test_no_request_holds_the_loop(house: House, name: str) -> None:
    path, body, status = REQUESTS[name]
    app_id = await house.app()
    longest = inf
    for _ in range(TRIES):
        if longest >= WIDE.loop_seconds:
            longest, reply = await longest_turn(house, path.format(app=app_id), body)
            assert reply.status == status, reply.body[:300]
    assert longest < WIDE.loop_seconds
