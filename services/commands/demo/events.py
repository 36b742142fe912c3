"""The demo's third act: the bus. One service publishes to two receivers, a healthy one and one that fails at first.

It uses Routemaster's published API, as its clients do. The receivers listen on this machine."""

import asyncio
import secrets
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from string import ascii_lowercase
from typing import Any

import msgspec

from services.commands.demo.stage import becomes_true, prove
from services.commands.seed import Customer
from shared.runtime.serving import HttpServer

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

EVENTS, REFUSALS = 1_000, 3

_AT_ONCE = 20
_MOST, _TIMEOUT_MS = 100, 200
_EVENT_SECONDS = 60.0


class BusReceiver:
    """A receiver that refuses its first requests, and keeps what it accepts. An event is known by its URL."""

    def __init__(self, name: str, *, refusals: int = 0) -> None:
        self.name = name
        self.refused = 0
        self.bodies: dict[str, set[bytes]] = {}
        self.events: list[str] = []
        self.first_at = self.last_at = 0.0
        self._refusals = refusals

    def take(self, delivery_id: str, body: bytes) -> int:
        """The status that a delivery is answered with."""
        self.bodies.setdefault(delivery_id, set()).add(body)
        if self.refused < self._refusals:
            self.refused += 1
            return 503
        self.events += [event["url"] for event in msgspec.json.decode(body)]
        self.last_at = time.monotonic()
        self.first_at = self.first_at or self.last_at
        return 204


async def publish_and_receive(api: str, root_key: str) -> bool:
    """Publish, and receive. Returns whether all promises were kept. Raises as `Customer`."""
    well, failing = receivers = BusReceiver("healthy"), BusReceiver("failing", refusals=REFUSALS)
    topic = "widgets_" + "".join(secrets.choice(ascii_lowercase) for _ in range(8))  # the last demo's has an owner
    async with AsyncExitStack() as opened:
        url = await opened.enter_async_context(_listen(*receivers))
        root = await opened.enter_async_context(Customer(api, _basic(root_key)))
        named = dict[str, Customer]()
        for name in (well.name, failing.name, "publisher"):
            token = (await root.call("POST", "/api_tokens", json={"name": name}))["token"]
            named[name] = await opened.enter_async_context(Customer(api, _basic(token)))
        for each in receivers:
            wish = {"topics": [topic], "callback": f"{url}/{each.name}", "max": _MOST, "timeout": _TIMEOUT_MS}
            await named[each.name].call("POST", "/subscriber", json=wish)
        await _publish_all(named["publisher"], topic)
        published = time.monotonic()
        in_time = await becomes_true(
            lambda: all(len(set(each.events)) >= EVENTS for each in receivers), seconds=_EVENT_SECONDS
        )
        for each in receivers:
            await named[each.name].call("DELETE", "/subscriber")  # they listen no longer from now on
    return check_events(well, failing, published=published, in_time=in_time)


def check_events(well: BusReceiver, failing: BusReceiver, *, published: float, in_time: bool) -> bool:
    """Show the promises of this act; `published` is when the last event was. Returns whether all were kept."""
    receivers = (well, failing)
    took = {each.name: f"{max(each.last_at - published, 0):.1f} s after the last was published" for each in receivers}
    proofs = [
        prove(
            f"each of {EVENTS:,} events came to both receivers, in one delivery each",
            (not in_time, "not all events came in time"),
            *_checks(well),
            *_checks(failing),
        ),
        prove(
            f"a delivery that was refused came again with the same body: {failing.refused:,} refusals, "
            f"{len(failing.events):,} events {took[failing.name]}",
            (failing.refused != REFUSALS, "the failing receiver has refused nothing"),
            *(
                (
                    any(len(bodies) > 1 for bodies in each.bodies.values()),
                    f"a delivery to the {each.name} receiver had another body the second time",
                )
                for each in receivers
            ),
        ),
        prove(
            f"the healthy receiver did not wait for the failing one: {len(well.events):,} events {took[well.name]}",
            (well.first_at >= failing.first_at, "the healthy receiver had to wait for the failing one"),
        ),
    ]
    return all(proofs)


def _checks(receiver: BusReceiver) -> list[tuple[bool, str]]:
    known, twice = len(set(receiver.events)), len(receiver.events) - len(set(receiver.events))
    return [
        (known != EVENTS, f"{known:,} of {EVENTS:,} events came to the {receiver.name} receiver"),
        (twice > 0, f"{twice:,} events came in two deliveries to the {receiver.name} receiver"),
    ]


@asynccontextmanager
async def _listen(*receivers: BusReceiver) -> AsyncIterator[str]:
    """The URL at which they listen, each below its name."""
    named = {f"/{receiver.name}": receiver for receiver in receivers}

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        delivery_id = dict(scope["headers"]).get(b"webhook-id", b"").decode()
        status = named[scope["path"]].take(delivery_id, body)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body"})

    server = HttpServer("receivers", app, host="127.0.0.1", port=0, lifespan="off")
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def _publish_all(publisher: Customer, topic: str) -> None:
    numbers = iter(range(EVENTS))

    async def publish() -> None:
        for number in numbers:
            event = {"type": "create", "url": f"https://shop.example.com/widgets/{number}"}
            await publisher.call("POST", f"/topics/{topic}", json=event)

    await asyncio.gather(*(publish() for _ in range(_AT_ONCE)))


def _basic(token: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'{token}:x'.encode()).decode()}"}
