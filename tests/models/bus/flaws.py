"""What is changed in mutants: one function in the place of another."""

import asyncio
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from services.feedback.fan_out import FanOut
from services.worker.bus.queue_run import QueueCalls
from shared.bus.flushing import LogFlusher, UnwokenUpkeep
from shared.bus.rules.cutting import ChunkHead, QueueCut
from shared.bus.rules.deliveries import Cursor
from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.rules.wake_ups import FAR_AHEAD, Rest, TakenWakeUp, Wake, WakeStage
from shared.bus.store_cuts import BusCuts, cursor_codec, delivery_codec
from shared.bus.store_log import BusFlush, BusFlushes, FlushResult, _document
from shared.bus.store_topics import read_registry
from shared.bus.store_wake_ups import HandedWakeUp, WakeUps, wake_up_id
from shared.clock.rules.occurrences import Occurrence
from shared.core.errors import Unavailable
from shared.drivers.kafka.reading import Reader
from shared.runtime.loops import Swept

_flush = BusFlushes.flush
_read_heads = BusCuts.read_heads
_wake = WakeUps.wake
_rest = WakeUps.rest
_take = WakeUps.take
_hand_over = WakeUps.hand_over
_hand_over_due = WakeUps.hand_over_due


def begin_many_calls(self: QueueCalls, in_flight: int) -> None:
    while self._pending and len(self._calls) < in_flight:
        delivery = self._pending.popleft()
        self._calls[asyncio.create_task(self._call(delivery))] = delivery


async def move_blindly(self: BusFlushes, flush: BusFlush, owner: str, session: Any) -> None:
    for name, reached in flush.reached.items():
        await self._positions.replace_one({"_id": name}, _document(name, reached, owner), session=session)


async def flush_whatever_changed(self: BusFlushes, flush: BusFlush, session: Any) -> FlushResult:
    if flush.version >= 0:
        flush = replace(flush, version=(await read_registry(self._database))[0])
    return await _flush(self, flush, session)


async def forget_and_wake(self: LogFlusher, flush: BusFlush) -> None:
    try:
        await self._store.bus_flushes.forget_unwoken(list(flush.unwoken))
        await self._wake(flush.wakes)
    except Unavailable:
        return


async def wake_nobody(self: UnwokenUpkeep, *, after: timedelta = timedelta()) -> Swept:
    return Swept()


async def rewind_nothing(self: FanOut, partitions: Collection[str], reader: Reader) -> None:
    await self._positions.read_again(partitions)


async def move_cursors_blindly(cursors: Any, moves: Sequence[tuple[Cursor, Cursor]], session: Any) -> None:
    for _, after in moves:
        await cursors.replace_one({"_id": after.id}, cursor_codec.document(after), session=session)


async def move_events_blindly(self: BusCuts, cuts: Sequence[QueueCut], session: Any) -> None:
    made = [delivery_codec.document(delivery) for cut in cuts for delivery in cut.deliveries]
    await self._deliveries.insert_many(made, session=session)
    await self._chunks.delete_many({"_id": {"$in": [id for cut in cuts for id in cut.used]}}, session=session)
    for cut in cuts:
        if (short := cut.shortened) is not None:
            change = {"skip": short.skip, "n": short.n, "bytes": short.bytes, "first_at": short.first_at}
            await self._chunks.update_one({"_id": short.id}, {"$set": change}, session=session)


def make_any_id(queue: str, sequence: int) -> str:
    return secrets.token_hex(16)


async def read_backwards(self: BusCuts, queues: Sequence[str], *, limit: int) -> list[ChunkHead]:
    return (await _read_heads(self, queues, limit=limit))[::-1]


async def rest_whatever_waits(self: WakeUps, rests: Sequence[Rest]) -> dict[tuple[str, str], TakenWakeUp]:
    now = await self._find_ours([rest.taken for rest in rests])
    return await _rest(self, [replace(rest, taken=now.get(rest.taken.claim, rest.taken)) for rest in rests])


async def wake_the_resting(
    self: WakeUps, wakes: Sequence[Wake], token: str, *, now: datetime, leased_until: datetime
) -> list[HandedWakeUp]:
    resting = {"_id": {"$in": [wake_up_id(wake.queue) for wake in wakes]}, "of.stage": WakeStage.RESTING.value}
    ids = {found["_id"] for found in await self._wake_ups.find(resting, {"_id": 1}).to_list()}
    heard = [wake for wake in wakes if wake_up_id(wake.queue) in ids]
    return await _wake(self, heard, token, now=now, leased_until=leased_until)


async def take_for_ever(
    self: WakeUps, handed: Sequence[tuple[str, str]], token: str, *, until: datetime, **of: Any
) -> dict[str, TakenWakeUp]:
    return await _take(self, handed, token, until=FAR_AHEAD, **of)


async def hand_over_for_ever(
    self: WakeUps, claimed: Sequence[Occurrence], token: str, *, until: datetime
) -> list[HandedWakeUp]:
    return await _hand_over(self, claimed, token, until=FAR_AHEAD)


async def hand_over_due_for_ever(
    self: WakeUps, ids: Sequence[str], token: str, *, now: datetime, until: datetime
) -> tuple[list[HandedWakeUp], dict[str, datetime]]:
    return await _hand_over_due(self, ids, token, now=now, until=FAR_AHEAD)


async def take_for_anybody(
    self: WakeUps, handed: Sequence[tuple[str, str]], token: str, *, until: datetime, **of: Any
) -> dict[str, TakenWakeUp]:
    query = {"_id": {"$in": [id for id, _ in handed]}}
    now = {found["_id"]: found.get("token", "") for found in await self._wake_ups.find(query, {"token": 1}).to_list()}
    return await _take(self, [(id, now.get(id, old)) for id, old in handed], token, until=until, **of)


async def follow_nothing(self: WakeUps, subscription: EventSubscription) -> None:
    """Nobody hears of it."""
