"""A fan-out at work on a log of its own, what is published there, and what lies in queues."""

import secrets
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from services.feedback.fan_out import FanOut
from shared.bus.flushing import LogFlusher, UnwokenUpkeep
from shared.bus.rules.events import EventDraft, stamp
from shared.bus.rules.folding import FoldLimits
from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.rules.wake_ups import Wake
from shared.bus.topics import ReadEnds, Registry, read_log_ends
from shared.core.errors import Unavailable
from shared.core.instants import ms
from shared.drivers.kafka import Stream
from shared.runtime.bus_settings import BusSettings
from shared.store import Store
from shared.time import DatabaseTime
from tests.waiting import until

SMALL = FoldLimits(pairs=20, chunks=6, chunk_events=3)


async def make_log(stream: Stream) -> str:
    name = f"bus-{secrets.token_hex(5)}"
    await stream.setup({name: 3})
    return name


def log_ends(stream: Stream, log: str) -> ReadEnds:
    return partial(read_log_ends, stream, log, 10)


class Wakes:
    """Who was woken with how many events. It fails for as long as it is `down`."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.down = False

    async def __call__(self, wakes: Sequence[Wake]) -> None:
        if self.down:
            raise Unavailable("down")
        for wake in wakes:
            self.events[wake.queue] += wake.events


@asynccontextmanager
async def fanning_out(
    stream: Stream, store: Store, log: str, wake: Wakes, *, limits: FoldLimits = SMALL, on_new_log: Any = "beginning"
) -> AsyncIterator[FanOut]:
    now = DatabaseTime(store).now
    settings = BusSettings(log_topic=log, group=log, on_new_log=on_new_log)
    unwoken = UnwokenUpkeep(store, wake, now)
    flusher = LogFlusher(store, Registry(store), wake, now, limits)
    running = FanOut(stream, store, flusher, unwoken, settings, stream.ping)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()
        assert running._task is not None
        running._task.result()


async def publish(store: Store, stream: Stream, log: str, ids: Sequence[str], *, topic: str = "a") -> None:
    at = ms(await store.now())
    records = [stamp(EventDraft("update", f"https://x/{id}"), topic=topic, id=id, at=at) for id in ids]
    for first in range(0, len(records), 20):
        await stream.publish(log, records[first : first + 20])


async def collected(store: Store, subscription: EventSubscription) -> list[str]:
    """What lies in its queue: the entities, in order."""
    chunks = store._database["bus_chunks"].find({"queue": subscription.queue}).sort("_id")
    return [
        msgspec.json.decode(event)["url"].removeprefix("https://x/")
        for chunk in await chunks.to_list()
        for event in chunk["events"]
    ]


async def collected_offsets(store: Store, subscription: EventSubscription) -> list[int]:
    """Where in the log the events of its queue lie, in their order there."""
    chunks = store._database["bus_chunks"].find({"queue": subscription.queue}).sort("_id")
    return [offset for chunk in await chunks.to_list() for _, offset in chunk["offsets"]]


async def got(store: Store, subscription: EventSubscription, ids: Sequence[str]) -> None:
    """Wait for these in its queue, each once, and nothing else."""

    async def are_there() -> bool:
        found = Counter(await collected(store, subscription))
        assert found <= Counter(ids), found - Counter(ids)
        return found == Counter(ids)

    await until(are_there, f"{len(ids)} events in a queue")
