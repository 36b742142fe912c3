"""Clients that take their time: all of them at once, each judged by when the process ends its connection.

A connection that is held is not an attack by itself; one that is held without end is, as soon as there are many.
"""

import asyncio
import itertools
import time
import urllib.request
from collections.abc import Iterable
from contextlib import suppress

import pytest

from tests.security.raw import Wire, head, statuses
from tests.security.target import Target
from tests.security.tenants import Town

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session")]

ENDED_WITHIN = 150.0
CROWD = 2_000
_PAUSE = 1.0
_START = b"POST /schedules HTTP/1.1\r\nHost: localhost\r\nx-forwarded-email: admin@example.com\r\n"

# What is sent at first, and then a piece a second, for as long as the connection is there.
SLOW: dict[str, tuple[bytes, Iterable[bytes]]] = {
    "half a head": (b"GET /docs HTTP/1.1\r\nHost: loc", ()),
    "half a request line": (b"GET /do", ()),
    "a head a byte at a time": (b"GET /docs HTTP/1.1\r\nHost: localhost\r\na: ", itertools.repeat(b"a")),
    "a header at a time": (b"GET /docs HTTP/1.1\r\nHost: localhost\r\n", itertools.repeat(b"a: b\r\n")),
    "half a body": (_START + b"Content-Length: 100\r\n\r\n{", ()),
    "a body a byte at a time": (_START + b"Content-Length: 10000\r\n\r\n", itertools.repeat(b" ")),
    "a chunk a byte at a time": (_START + b"Transfer-Encoding: chunked\r\n\r\n", itertools.repeat(b"1\r\n \r\n")),
    "half a chunk": (_START + b"Transfer-Encoding: chunked\r\n\r\n100\r\n{", ()),
    "half a head to the health port": (b"GET /livez HTTP/1.1\r\nHost: loc", ()),
}
# Nobody waits for an answer any more, or the answer is there already: the connection may go without a word.
SILENT = {
    "nothing at all": b"",
    "nothing after an answer": head("GET", "/docs", last=False),
    "half of a second head": head("GET", "/docs", last=False) + b"GET /docs HTTP/1.1\r\nHo",
    "half a body that the health port refuses": b"POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{",
}


_OF_SILENT: tuple[list[int], ...] = ([], [408], [200], [200, 408], [405])


async def held(port: int, begins: bytes, follows: Iterable[bytes]) -> tuple[list[int], float]:
    """What such a client is answered with until its connection is ended, and after how long that is."""
    wire = await Wire.open(port)
    began = time.monotonic()
    await wire.send(begins)
    sending = asyncio.create_task(trickle(wire, follows))
    try:
        return statuses(await asyncio.wait_for(wire.rest(), ENDED_WITHIN)), time.monotonic() - began
    except TimeoutError:
        return [], ENDED_WITHIN
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        wire.close()


async def trickle(wire: Wire, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        await asyncio.sleep(_PAUSE)
        if not await wire.send(piece):
            return


@pytest.mark.slow
async def test_slow_requests_are_ended_with_408_and_silent_connections_are_ended(target: Target) -> None:
    """All of them begin together, as each of them takes its time."""
    await target.whole()
    work = [held(_port(target, name), *SLOW[name]) for name in SLOW]
    work += [held(_port(target, name), begins, ()) for name, begins in SILENT.items()]
    ends = dict(zip([*SLOW, *SILENT], await asyncio.gather(*work), strict=True))
    assert [name for name, (_, seconds) in ends.items() if seconds >= ENDED_WITHIN] == [], "these are still there"
    assert {name: ends[name][0] for name in SLOW if ends[name][0][-1:] != [408]} == {}
    assert {name: ends[name][0] for name in SILENT if ends[name][0] not in _OF_SILENT} == {}


def _port(target: Target, name: str) -> int:
    return target.running.health_port if "health" in name else target.port


CROWDS = {"half a head": SLOW["half a head"][0], "half a body": SLOW["half a body"][0], "nothing at all": b""}


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize("name", CROWDS)
async def test_a_crowd_of_slow_connections_takes_nothing_from_the_health_port(
    target: Target, town: Town, name: str
) -> None:
    """`attack` looks at the health port meanwhile. The API may be full as long as the crowd is there, and no longer."""
    async with target.attack(f"{CROWD:,} connections with {name}"):
        wires = await crowd(target, CROWDS[name])
        for _ in range(50):
            await asyncio.to_thread(livez, target)
        for wire in wires:
            wire.close()
        assert (await target.call("GET", "/docs")).status == 200


@pytest.mark.storm
@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize("name", CROWDS)
async def test_a_crowd_of_slow_connections_is_ended(target: Target, town: Town, name: str) -> None:
    async with target.attack(f"{CROWD:,} connections with {name}, to their end", seconds=300):
        wires = await crowd(target, CROWDS[name])
        await asyncio.gather(*(wire.rest() for wire in wires))
        for wire in wires:
            wire.close()
        assert (await target.call("GET", "/docs")).status == 200


async def crowd(target: Target, begins: bytes) -> list[Wire]:
    wires = [await Wire.open(target.port) for _ in range(CROWD)]
    await asyncio.gather(*(wire.send(begins) for wire in wires))
    return wires


def livez(target: Target) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{target.running.health_port}/livez", timeout=10) as answer:
        assert answer.status == 200
