"""Settling calls of one queue together with its cursor, one settlement at a time, because each follows from the cursor
that the last one wrote."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from services.worker.bus.counting import count_call, count_settled
from services.worker.bus.heads import HeadsAsked
from services.worker.bus.held_queue import HeldQueue
from shared.domain.bus.cursors import Cursor
from shared.domain.bus.dead_letters import DeathReason
from shared.domain.bus.deliveries import DeliveryStatus, EventDelivery
from shared.domain.bus.notices import notices_of_settlement
from shared.domain.bus.settling import CallResult, SettledDelivery, bury, settle
from shared.domain.errors import Unavailable
from shared.runtime.faults import fault
from shared.store.bus.deliveries import QueueSettlement

_AGAIN_SECONDS = 0.3

EndedCall = tuple[EventDelivery, CallResult]


class QueueSettling:
    """Writes the results of a queue's deliveries. `callback` is the one whose failure was written last."""

    def __init__(self, held: HeldQueue) -> None:
        self._held = held
        self.callback = ""

    async def settle(self, ended: Sequence[EndedCall]) -> None:
        """Write the results of calls. While the store is away, this repeats as long as the lease lasts. Raises
        `WakeUpLost`."""
        some = list(ended)
        while some:
            try:
                if await self._write_ended(some):
                    break
                some = await self._find_open(some)
            except Unavailable:
                if not self._held.is_leased:
                    raise
                await asyncio.sleep(_AGAIN_SECONDS)
        for callback in {result.callback for _, result in ended if result.is_gone}:
            await self._held.suspend("its receiver answered 410: it is gone", callback)
        await fault("deliver.after_settle")

    async def bury(self, old: Iterable[EventDelivery], now: datetime) -> None:
        """Turn deliveries that are too old into dead letters; they come with their events. Raises `WakeUpLost`."""
        cursor, settled = self._held.cursor, list[SettledDelivery]()
        for delivery in old:
            cursor, one = bury(cursor, delivery, self._held.active, DeathReason.AGE, now)
            settled.append(one)
        if settled and not await self._write(cursor, settled):
            await self._held.renew()  # still held: the cursor has moved, and is read again
            return
        for one in settled:
            count_settled(self._held.active, one)

    async def _write_ended(self, ended: Iterable[EndedCall]) -> bool:
        cursor, settled = self._held.cursor, list[tuple[SettledDelivery, CallResult]]()
        for delivery, result in ended:
            cursor, one = settle(cursor, delivery, result, self._held.active, self._held.tools.care)
            settled.append((one, result))
        if not await self._write(cursor, [one for one, _ in settled]):
            return False
        for one, result in settled:
            self.callback = self.callback if result.is_success else result.callback
            count_call(self._held.active, one, result)
        return True

    async def _write(self, cursor: Cursor, settled: Sequence[SettledDelivery]) -> bool:
        before = self._held.cursor
        if cursor.health.is_failing and not cursor.open_deliveries and not await self._has_chunks():
            # No call is made until more events come. That time says nothing about the receiver.
            cursor = replace(cursor, health=cursor.health.rest_from(self._held.tools.time.reckon()))
        after = replace(cursor, v=before.v + 1)
        notices = notices_of_settlement(self._held.active, before, after)
        if not await self._held.tools.store.settle(QueueSettlement(before, after, tuple(settled), notices)):
            return False
        self._held.cursor = after
        return True

    async def _has_chunks(self) -> bool:
        return bool(await self._held.tools.store.read_heads(HeadsAsked(self._held.queue, 1, 1)))

    async def _find_open(self, ended: Sequence[EndedCall]) -> list[EndedCall]:
        """The calls that are still to be settled, with their present deliveries."""
        await self._held.read_after_move()
        found = await self._held.tools.store.read_bodies([delivery for delivery, _ in ended])
        results = {delivery.id: result for delivery, result in ended}
        return [(now, results[now.id]) for now in found if now.status is DeliveryStatus.OPEN]
