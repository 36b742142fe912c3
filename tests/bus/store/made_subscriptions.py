"""Subscriptions and flushes as tests make them."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from shared.bus.rules.folding import EventChunk, LogEntry
from shared.bus.rules.subscriptions import EventSubscription, subscription_id
from shared.bus.rules.wake_ups import Wake
from shared.bus.store_log import BusFlush, LogPosition, PositionMove
from shared.bus.store_subscriptions import SubscriptionWrite
from shared.core.documents import LogEnds, Position
from shared.store import Store

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def made(key: str = "k", *topics: str, namespace: str = "token:n", **fields: object) -> EventSubscription:
    subscription = EventSubscription(
        id=subscription_id(namespace, key),
        namespace=namespace,
        key=key,
        generation=secrets.token_hex(4),
        callback="https://receiver.example/events",
        topics=topics,
        created_at=NOON,
        updated_at=NOON,
    )
    return replace(subscription, **fields)


async def add(store: Store, key: str = "k", *topics: str, **fields: object) -> EventSubscription:
    new = made(key, *topics, **fields)  # type: ignore[arg-type]  # a namespace is among them
    written = await store.bus_subscriptions.write(SubscriptionWrite(None, new), now=NOON)
    assert written is not None
    return written


async def change(
    store: Store, stands: EventSubscription, *, now: datetime = NOON, **fields: object
) -> EventSubscription | None:
    return await store.bus_subscriptions.write(SubscriptionWrite(stands, replace(stands, **fields)), now=now)


async def version(store: Store) -> int:
    return (await store.bus_subscriptions.read_since(-1)).version


def chunk(queue: str, *places: tuple[str, int]) -> EventChunk:
    filled = EventChunk(queue)
    for partition, offset in places:
        entry = LogEntry(partition, offset, offset + 1, b"{}", None, 0)
        filled.add(f'{{"n":{offset}}}'.encode(), 1_000 + offset, entry)
    return filled


def flush_of(
    version: int,
    steps: Mapping[str, tuple[LogPosition, int]],
    *chunks: EventChunk,
    order: int = 1,
    wakes: Sequence[Wake] = (),
    counts: Mapping[str, tuple[int, int]] | None = None,
) -> BusFlush:
    return BusFlush(
        id=secrets.token_hex(4),
        version=version,
        at=NOON,
        order=order,
        moves=[PositionMove(name, stands, Position(to, "log")) for name, (stands, to) in steps.items()],
        chunks=chunks,
        wakes=wakes,
        counts=counts or {},
    )


async def no_log() -> LogEnds:
    """The ends of a log that has no partition."""
    return LogEnds(id="none", log="log", offsets=())
