"""Chunks as tests store them, and what is asked of the database about them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from pymongo import AsyncMongoClient, monitoring

from shared.bus.rules.cutting import ChunkHead
from shared.bus.store_cuts import BusCuts
from shared.store import Store

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Finds(monitoring.CommandListener):
    """The queries that one client sends, and the most of them that were under way at the same time."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.running = self.most_running = 0

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name == "find":
            self.sent.append(dict(event.command))
            self.running += 1
            self.most_running = max(self.most_running, self.running)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        self.running -= event.command_name == "find"

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        self.running -= event.command_name == "find"


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[tuple[BusCuts, Finds]]:
    """What cuts, on a client of its own, and what that asks."""
    finds = Finds()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, tz_aware=True, event_listeners=[finds])
    yield BusCuts(client.get_default_database()), finds
    await client.close()


async def add_chunks(store: Store, queue: str, count: int) -> list[str]:
    chunks = [
        {"_id": f"{queue}/{number:013d}", "queue": queue, "n": 1, "bytes": 5, "first_at": NOON, "events": [b"event"]}
        for number in range(count)
    ]
    await store._database["bus_chunks"].insert_many(chunks)
    return [str(chunk["_id"]) for chunk in chunks]


def ids(heads: list[ChunkHead]) -> list[str]:
    return [head.id for head in heads]
