"""What publishers and users of the bus want."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from msgspec import UNSET

from services.wiring.rooms import BusRoom
from shared.bus.rules.events import EventDraft
from shared.bus.rules.subscriptions import SubscriptionWish
from shared.core.errors import CarillonError, Unavailable

NAMESPACE = "shop"
TOPICS = ("orders", "people")
KEYS = ("a", "b", "c")
VERBS = ("pause", "pause", "resume", "resume", "suspend", "remove", "subscribe", "subscribe")
_PAUSES = (0.0, 0.0, 0.1, 1.0, 5.0)

Ask = Callable[[BusRoom], Awaitable[None]]
"""Asks something of the bus, as the API does for its callers. Raises `CarillonError`."""


class PlannedEvent:
    """An event that is to be published, so long after the one before it."""

    def __init__(self, number: int, chance: Random) -> None:
        self.id = f"e{number}"
        self.topic = chance.choice(TOPICS)
        self.wait_seconds = chance.choice(_PAUSES)
        self._url = f"https://shop/{chance.randrange(4)}"

    @property
    def draft(self) -> EventDraft:
        return EventDraft("create", self._url, id=self.id)


def draw_wish(key: str, chance: Random, *, is_new: bool = True) -> SubscriptionWish:
    """What somebody wants of this subscription."""
    return SubscriptionWish(
        namespace=NAMESPACE,
        key=key,
        callback=f"https://{key}.example/",
        topics=chance.choice((TOPICS, TOPICS, TOPICS[:1], TOPICS[1:])),
        max_events=chance.choice((1, 2, 5)),
        timeout_ms=chance.choice((0, 500, 5_000)),
        ordered=chance.random() < 0.4 if is_new else UNSET,
        in_flight=chance.choice((1, 2, 8)),
        max_attempts=chance.choice((1, 3, 20)),
    )


def draw_ask(verb: str, key: str, queue: str, chance: Random) -> Ask:
    """What a user asks for."""
    wish = draw_wish(key, chance, is_new=False)

    async def ask(bus: BusRoom) -> None:
        match verb:
            case "pause":
                await bus.subscribing.pause(NAMESPACE, key)
            case "resume":
                await bus.subscribing.resume(NAMESPACE, key)
            case "remove":
                await bus.subscribing.unsubscribe(NAMESPACE, key)
            case "suspend":
                await bus.subscribing.suspend(queue, "its receiver fails")
            case _:
                await bus.subscribing.subscribe(wish)

    return ask


def resume(key: str) -> Ask:
    """Let a subscription be called again."""

    async def ask(bus: BusRoom) -> None:
        await bus.subscribing.resume(NAMESPACE, key)

    return ask


async def try_once(ask: Ask, bus: BusRoom, answered: Callable[[], None]) -> None:
    """Ask once, as a user does who takes no for an answer. `Unavailable` is none: the change may still come."""
    try:
        await ask(bus)
    except Unavailable:
        return
    except CarillonError:
        pass
    answered()


async def publish_all(events: list[PlannedEvent], bus: BusRoom, accept: Callable[[str], None]) -> None:
    """Publish these, one after the other, each again until there is an answer; takes out those that had one."""
    while events:
        event = events[0]
        await asyncio.sleep(event.wait_seconds)
        try:
            await bus.publisher.publish(event.topic, "publisher", [event.draft])
        except Unavailable:
            await asyncio.sleep(1)
            continue
        accept(event.id)
        events.remove(event)
